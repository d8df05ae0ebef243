//! Reads the claims that `jwt_authn` left in the request's metadata after it verified the token.
//!
//! The metadata arrives as the protobuf message that Envoy keeps. So every claim has its type, a
//! null claim does not affect the others, and only the claims that the guard uses are decoded. If a
//! key occurs twice, the last one counts, as protobuf requires.

use std::borrow::Cow;

use crate::confirmation::Confirmation;
use crate::host::UnixTime;
use crate::state::revocations::{Impersonation, Mark};

/// The filter whose metadata holds the claims.
const JWT_AUTHN: &[u8] = b"envoy.filters.http.jwt_authn";

/// The access token of a request that enters the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'m> {
    /// The filter issued the token.
    Impersonation(Claims<'m>),
    /// The token is an ordinary user's, and bound to a key.
    Bound(Binding),
}

/// The claims of an access token that the filter issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claims<'m> {
    /// The impersonation's id (`txn`), which revocations name.
    pub(super) id: &'m str,
    pub(super) user_id: &'m str,
    /// The acting user; `None` if the token has no actor.
    pub(super) actor_id: Option<&'m str>,
    /// The session in which the acting user signed in; `None` if the token names none.
    pub(super) session: Option<&'m str>,
    /// The time at which the acting user signed in; `None` if the token does not say it.
    pub(super) signed_in_at: Option<UnixTime>,
    pub(super) client_id: &'m str,
    pub(super) resource: &'m str,
    pub(super) jti: &'m str,
    /// `iat` in seconds.
    pub(super) issued_at: u64,
    /// The time from which on the token is refused.
    pub(super) expires_at: UnixTime,
    pub(super) scope: Scope<'m>,
    /// The keys that the token is bound to.
    pub(super) binding: Binding,
}

/// The keys that a token is bound to (`cnf`, RFC 7800).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    /// The token has no `cnf`.
    None,
    /// The token is bound to these keys.
    To(Confirmation),
    /// The token is bound to something that the guard does not understand.
    NotUnderstood,
}

/// The scope of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope<'m> {
    /// Scopes separated by spaces, as issued (RFC 6749 §3.3).
    Text(&'m str),
    /// Scopes in a `google.protobuf.ListValue`. `jwt_authn` splits the claim if it is told to by
    /// `normalize_payload_in_metadata`, and Istio always tells it so.
    List(&'m [u8]),
}

impl<'m> Scope<'m> {
    fn tokens(self) -> impl Iterator<Item = &'m str> {
        let (text, list) = match self {
            Self::Text(text) => (text, [].as_slice()),
            Self::List(list) => ("", list),
        };
        text.split(' ').filter(|token| !token.is_empty()).chain(texts(list).flatten())
    }

    /// Returns the scope as it was issued.
    pub(super) fn text(self) -> Cow<'m, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::List(_) => self.tokens().collect::<Vec<_>>().join(" ").into(),
        }
    }
}

/// The reason why a request has no usable claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoClaims {
    /// `jwt_authn` did not run, or stores its payload elsewhere.
    Missing,
    /// The token is of another issuer.
    OtherIssuer,
    /// The claims are not as the filter issues them.
    Malformed,
}

impl<'m> Token<'m> {
    /// Reads the claims stored as `payload` in the metadata. A token with `txn` must be one that
    /// `issuer` issued.
    pub(super) fn read(metadata: &'m [u8], payload: &str, issuer: &str) -> Result<Self, NoClaims> {
        let claims = RawClaims::of(metadata, payload)?;
        if claims.txn == Value::Absent && claims.cnf != Value::Absent {
            return Binding::of(claims.cnf).map(Self::Bound).ok_or(NoClaims::Malformed);
        }
        claims.issued_by(issuer).map(Self::Impersonation)
    }
}

impl<'m> Claims<'m> {
    /// Reads the claims stored as `payload` in the metadata, of a token that `issuer` issued.
    pub(super) fn read(metadata: &'m [u8], payload: &str, issuer: &str) -> Result<Self, NoClaims> {
        RawClaims::of(metadata, payload)?.issued_by(issuer)
    }

    /// Returns the facts about the token that a revocation can name.
    pub(super) fn impersonation(&self, mark: &Mark) -> Impersonation<'m> {
        Impersonation {
            id: self.id,
            user_id: self.user_id,
            actor_id: self.actor_id,
            client_id: self.client_id,
            caller: mark.caller,
            resource: self.resource,
            session: self.session,
            actor_since: mark.actor_since,
        }
    }

    pub(super) fn has_scope(&self, scope: &str) -> bool {
        self.scope.tokens().any(|token| token == scope)
    }
}

/// The claims that the guard uses, before their types are checked.
#[derive(Default)]
struct RawClaims<'m> {
    iss: Value<'m>,
    sub: Value<'m>,
    aud: Value<'m>,
    client_id: Value<'m>,
    iat: Value<'m>,
    exp: Value<'m>,
    jti: Value<'m>,
    scope: Value<'m>,
    txn: Value<'m>,
    act: Value<'m>,
    cnf: Value<'m>,
}

impl<'m> RawClaims<'m> {
    fn of(metadata: &'m [u8], payload: &str) -> Result<Self, NoClaims> {
        let claims = payload_of(metadata, payload.as_bytes());
        let Value::Struct(claims) = claims.ok_or(NoClaims::Malformed)? else {
            return Err(NoClaims::Missing);
        };
        Self::read(claims).ok_or(NoClaims::Malformed)
    }

    fn issued_by(self, issuer: &str) -> Result<Claims<'m>, NoClaims> {
        if self.iss != Value::String(issuer) {
            return Err(NoClaims::OtherIssuer);
        }
        self.typed().ok_or(NoClaims::Malformed)
    }

    fn read(claims: &'m [u8]) -> Option<Self> {
        let mut raw = Self::default();
        for entry in members(claims) {
            let (name, value) = entry?;
            let claim = match name {
                b"iss" => &mut raw.iss,
                b"sub" => &mut raw.sub,
                b"aud" => &mut raw.aud,
                b"client_id" => &mut raw.client_id,
                b"iat" => &mut raw.iat,
                b"exp" => &mut raw.exp,
                b"jti" => &mut raw.jti,
                b"scope" => &mut raw.scope,
                b"txn" => &mut raw.txn,
                b"act" => &mut raw.act,
                b"cnf" => &mut raw.cnf,
                _ => continue,
            };
            *claim = Value::read(value)?;
        }
        Some(raw)
    }

    fn typed(self) -> Option<Claims<'m>> {
        let (actor_id, session, signed_in_at) = match self.act {
            Value::Absent => (None, None, None),
            // An actor must have a name (RFC 8693 §4.1).
            Value::Struct(act) => {
                let session = match member(act, b"sid")? {
                    Value::Absent => None,
                    session => Some(session.name()?),
                };
                let signed_in_at = match member(act, b"auth_time")? {
                    Value::Absent => None,
                    Value::Number(time) => Some(UnixTime::from_numeric_date(time)),
                    _ => return None,
                };
                (Some(member(act, b"sub")?.name()?), session, signed_in_at)
            }
            _ => return None,
        };
        let Value::Number(issued_at) = self.iat else { return None };
        if !(0.0..=9_007_199_254_740_992.0).contains(&issued_at) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 2^53")]
        // Round down. A token that was issued in the second of its revocation then counts as
        // revoked.
        let issued_at = issued_at.floor() as u64;
        let Value::Number(expires_at) = self.exp else { return None };
        let scope = match self.scope {
            Value::Absent | Value::String("") => Scope::Text(""),
            scope @ Value::String(_) => Scope::Text(scope.name()?),
            Value::List(list) if texts(list).all(|token| token.is_some()) => Scope::List(list),
            _ => return None,
        };
        Some(Claims {
            id: self.txn.name()?,
            user_id: self.sub.name()?,
            actor_id,
            session,
            signed_in_at,
            client_id: self.client_id.name()?,
            resource: self.aud.name()?,
            jti: self.jti.name()?,
            issued_at,
            expires_at: UnixTime::from_numeric_date(expires_at),
            scope,
            binding: Binding::of(self.cnf)?,
        })
    }
}

impl Binding {
    /// Reads `cnf`; `None` if the bytes are not a message.
    fn of(cnf: Value<'_>) -> Option<Self> {
        let members = match cnf {
            Value::Absent => return Some(Self::None),
            Value::Struct(cnf) => members(cnf),
            _ => return Some(Self::NotUnderstood),
        };
        let mut confirmation = Confirmation::default();
        for member in members {
            let (name, value) = member?;
            let text = Value::read(value)?.name();
            let understood = str::from_utf8(name).ok().zip(text);
            if understood.and_then(|(name, text)| confirmation.add(name, text)).is_none() {
                return Some(Self::NotUnderstood);
            }
        }
        Some(if confirmation.is_bound() { Self::To(confirmation) } else { Self::NotUnderstood })
    }
}

/// A `google.protobuf.Value`, with the types that the claims need.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Value<'m> {
    #[default]
    Absent,
    Number(f64),
    String(&'m str),
    /// A `google.protobuf.Struct`, not decoded yet.
    Struct(&'m [u8]),
    /// A `google.protobuf.ListValue`, not decoded yet.
    List(&'m [u8]),
    /// Null or a boolean.
    Other,
}

impl<'m> Value<'m> {
    /// Returns `None` if the bytes are not a message.
    fn read(message: &'m [u8]) -> Option<Self> {
        let mut value = Self::Other;
        for field in fields(message) {
            value = match field? {
                (2, Field::Fixed64(bits)) => Self::Number(f64::from_bits(bits)),
                (3, Field::Bytes(text)) => Self::String(str::from_utf8(text).ok()?),
                (5, Field::Bytes(fields)) => Self::Struct(fields),
                (6, Field::Bytes(values)) => Self::List(values),
                _ => Self::Other,
            };
        }
        Some(value)
    }

    /// Returns the text if it is a string that can be a name: not empty, without control
    /// characters. The filter never issues names with control characters, and an access log would
    /// print them raw.
    fn name(self) -> Option<&'m str> {
        match self {
            Self::String(text) if !text.is_empty() && !text.contains(char::is_control) => {
                Some(text)
            }
            _ => None,
        }
    }
}

/// Returns the `Authorization` header that `header_to_metadata` has kept; `None` if it has not.
pub(super) fn authorization(metadata: &[u8]) -> Option<&str> {
    match member_of(metadata, b"impersonation", b"authorization")? {
        Value::String(header) => Some(header),
        _ => None,
    }
}

/// Finds the payload that `jwt_authn` stored under a name in an `envoy.config.core.v3.Metadata`.
fn payload_of<'m>(metadata: &'m [u8], name: &[u8]) -> Option<Value<'m>> {
    member_of(metadata, JWT_AUTHN, name)
}

/// Finds a member that a filter has left in an `envoy.config.core.v3.Metadata`.
fn member_of<'m>(metadata: &'m [u8], of: &[u8], name: &[u8]) -> Option<Value<'m>> {
    const FILTER_METADATA: u64 = 1;
    let mut of_filter: &[u8] = &[];
    for field in fields(metadata) {
        if let (FILTER_METADATA, Field::Bytes(entry)) = field? {
            let (filter, fields) = entry_of(entry)?;
            if filter == of {
                of_filter = fields;
            }
        }
    }
    member(of_filter, name)
}

/// Finds a member of a `google.protobuf.Struct`. The outer `None` means that the bytes are not a
/// message.
fn member<'m>(fields: &'m [u8], name: &[u8]) -> Option<Value<'m>> {
    let mut found = Value::Absent;
    for entry in members(fields) {
        let (have, value) = entry?;
        if have == name {
            found = Value::read(value)?;
        }
    }
    Some(found)
}

/// Iterates over the strings of a `google.protobuf.ListValue`. An item that is no string is `None`.
fn texts(message: &[u8]) -> impl Iterator<Item = Option<&str>> {
    const VALUES: u64 = 1;
    fields(message).map(|field| match field? {
        (VALUES, Field::Bytes(value)) => Value::read(value)?.name(),
        _ => None,
    })
}

/// Iterates over the members of a `google.protobuf.Struct` (`map<string, Value> fields = 1`).
fn members(message: &[u8]) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
    fields(message).filter_map(|field| match field {
        Some((1, Field::Bytes(entry))) => Some(entry_of(entry)),
        Some(_) => None,
        None => Some(None),
    })
}

/// Returns key and value of an entry of a protobuf map.
fn entry_of(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    for field in fields(entry) {
        match field? {
            (1, Field::Bytes(bytes)) => key = bytes,
            (2, Field::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Some((key, value))
}

/// The content of a protobuf field.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Field<'m> {
    Bytes(&'m [u8]),
    Fixed64(u64),
    /// A wire type that the guard does not use.
    Other,
}

/// Iterates over the fields of a message by number. Yields `None` and ends where the bytes are not
/// a message.
fn fields(message: &[u8]) -> impl Iterator<Item = Option<(u64, Field<'_>)>> {
    let mut rest = Some(message);
    std::iter::from_fn(move || {
        let here = rest.take().filter(|here| !here.is_empty())?;
        let field = field(here);
        rest = field.map(|(_, rest)| rest);
        Some(field.map(|(field, _)| field))
    })
}

type FieldAndRest<'m> = ((u64, Field<'m>), &'m [u8]);

fn field(message: &[u8]) -> Option<FieldAndRest<'_>> {
    let (tag, rest) = varint(message)?;
    let (field, rest) = match tag & 7 {
        0 => (Field::Other, varint(rest)?.1),
        1 => {
            let (bytes, rest) = rest.split_first_chunk()?;
            (Field::Fixed64(u64::from_le_bytes(*bytes)), rest)
        }
        2 => {
            let (len, rest) = varint(rest)?;
            let (bytes, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            (Field::Bytes(bytes), rest)
        }
        5 => (Field::Other, rest.split_first_chunk::<4>()?.1),
        _ => return None,
    };
    Some(((tag >> 3, field), rest))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        let shift = u32::try_from(index).ok()?.checked_mul(7)?;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index.checked_add(1)?..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests;
