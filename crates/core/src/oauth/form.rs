//! A form body (`application/x-www-form-urlencoded`, RFC 6749 appendix B).
//!
//! Two readings of one body. [`looks_like_exchange`] decides whether the request is ours at all and must
//! get along with anything, since what is not ours goes on as it came. [`Form::parse`] then reads it
//! strictly: a parameter twice, a stray percent sign or bytes that are not UTF-8 are refused, never
//! guessed at, because the next reader could guess otherwise.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use percent_encoding::percent_decode;

use super::TOKEN_EXCHANGE;

/// What some readers take away before they read, and others for the beginning of the first name.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A form whose every parameter could be read and occurs once.
pub struct Form<'a> {
    /// By name.
    parameters: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

/// Why a form was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// A percent sign without two hex digits, or bytes that are not UTF-8.
    #[error("the form is not properly encoded")]
    Encoding,
    /// A `charset` in which ASCII need not be ASCII: see [`is_ascii_based`](crate::media_type::is_ascii_based).
    #[error("the form is in a charset that is not read")]
    Charset,
    /// RFC 6749 §3.2: parameters must not be included more than once. Which one is not said: a name is the
    /// caller's own text, and could be a token.
    #[error("a parameter is repeated")]
    Repeated,
    /// RFC 8693 lets `resource` be repeated, we bind a token to one.
    #[error("more than one resource")]
    SeveralResources,
}

impl<'a> Form<'a> {
    /// Reads a body.
    pub fn parse(body: &'a [u8]) -> Result<Self, FormError> {
        if body.starts_with(BYTE_ORDER_MARK) {
            return Err(FormError::Encoding);
        }
        // A body is full of names if somebody wants it to be: each is looked for once, not in all others.
        let mut parameters: BTreeMap<Cow<'a, str>, Cow<'a, str>> = BTreeMap::new();
        for (name, value) in pairs(body) {
            let name = decode(name).ok_or(FormError::Encoding)?;
            let value = decode(value).ok_or(FormError::Encoding)?;
            match parameters.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(entry) => match &**entry.key() {
                    "resource" => return Err(FormError::SeveralResources),
                    // Repeatable by RFC 8693, and refused for another reason once it is its turn.
                    "audience" => {}
                    _ => return Err(FormError::Repeated),
                },
            }
        }
        Ok(Self { parameters })
    }

    /// The names of all parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.keys().map(|name| &**name)
    }

    /// The value of a parameter; empty where it is there without one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(|value| &**value)
    }
}

/// Not even the names: in a form that is badly put together a secret can stand where a name should.
impl fmt::Debug for Form<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Form({} parameters redacted)", self.parameters.len())
    }
}

/// What a first look at a form body says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// A token exchange of a subject token that begins with the given prefix, or of none at all.
    LikeOurExchange,
    /// A token exchange of another kind of subject token.
    LikeForeignExchange,
    /// Another grant, or no OAuth request.
    LikeAnotherGrant,
}

/// A first look at a body that may be anything, and may be cut off.
///
/// If a parameter is repeated any occurrence counts: what looks like ours in one reading must not slip
/// through to the gateway in another.
pub fn looks_like_exchange(body: &[u8], prefix: &str) -> Looks {
    let mut exchange = false;
    let mut subject_token = None;
    for (name, value) in pairs(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body)) {
        match decode(name).as_deref() {
            Some("grant_type") => {
                exchange |= decode(value).is_some_and(|value| value == TOKEN_EXCHANGE)
            }
            Some("subject_token") => {
                // As the most forgiving reader has it: what is badly encoded behind the prefix is refused by
                // us, and not by somebody who reads around it.
                let begins_with_prefix =
                    || percent_decode(value).take(prefix.len()).eq(prefix.bytes());
                let ours = value.is_empty() || begins_with_prefix();
                subject_token = Some(subject_token.unwrap_or(false) || ours);
            }
            _ => {}
        }
    }
    match (exchange, subject_token) {
        (false, _) => Looks::LikeAnotherGrant,
        (true, Some(false)) => Looks::LikeForeignExchange,
        (true, Some(true) | None) => Looks::LikeOurExchange,
    }
}

/// The values of all parameters of a name, in a body that may be anything, as the most forgiving reader has them.
pub fn values(body: &[u8], name: &str) -> Vec<Vec<u8>> {
    let pairs = pairs(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body));
    let named = pairs.filter(|(given, _)| decode(given).is_some_and(|given| given == name));
    named.map(|(_, value)| percent_decode(value).collect()).collect()
}

/// The pairs as they stand, undecoded.
fn pairs(body: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        (halves.next().unwrap_or_default(), halves.next().unwrap_or_default())
    })
}

/// Decodes a name or a value strictly.
pub(crate) fn decode(encoded: &[u8]) -> Option<Cow<'_, str>> {
    if !encoded.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return std::str::from_utf8(encoded).ok().map(Cow::Borrowed);
    }
    let mut escapes = encoded.split(|byte| *byte == b'%').skip(1);
    let well_formed = escapes.all(|tail| {
        tail.first_chunk::<2>().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    let spaced: Vec<u8> =
        encoded.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let text = percent_decode(&spaced).decode_utf8().ok()?;
    well_formed.then(|| Cow::Owned(text.into_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_names_and_values() {
        let form = Form::parse(b"a=1&b=x+y%20z&empty=&bare&%63=%26").unwrap();
        #[rustfmt::skip]
        let cases = [("a", Some("1")), ("b", Some("x y z")), ("empty", Some("")), ("bare", Some("")), ("c", Some("&")), ("d", None)];
        for (name, value) in cases {
            assert_eq!(form.get(name), value, "{name}");
        }
    }

    #[test]
    fn refuses_what_two_readers_could_read_differently() {
        #[rustfmt::skip]
        let cases: [(&[u8], FormError); 8] = [
            (b"\xef\xbb\xbfa=1",     FormError::Encoding),
            (b"a=1&a=2",               FormError::Repeated),
            (b"a=1&%61=2",             FormError::Repeated),
            (b"a=%",                   FormError::Encoding),
            (b"a=%2",                  FormError::Encoding),
            (b"a=%zz",                 FormError::Encoding),
            (b"a=%ff",                 FormError::Encoding),
            (b"resource=a&resource=b", FormError::SeveralResources),
        ];
        for (body, error) in cases {
            assert_eq!(Form::parse(body).unwrap_err(), error, "{}", body.escape_ascii());
        }
    }

    #[test]
    fn tells_our_exchanges_from_everything_else() {
        const GRANT: &str = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange";
        #[rustfmt::skip]
        let cases = [
            (format!("{GRANT}&subject_token=sub_a"),                          Looks::LikeOurExchange),
            (format!("subject_token=sub%5fa&{GRANT}"),                        Looks::LikeOurExchange),
            (format!("\u{feff}{GRANT}&subject_token=sub_a"),                  Looks::LikeOurExchange),
            (GRANT.to_owned(),                                                Looks::LikeOurExchange),
            (format!("{GRANT}&subject_token="),                               Looks::LikeOurExchange),
            (format!("{GRANT}&subject_token=sub_%ff"),                        Looks::LikeOurExchange),
            (format!("{GRANT}&subject_token=%73ub_a%"),                       Looks::LikeOurExchange),
            (format!("{GRANT}&subject_token=sub_%zz"),                        Looks::LikeOurExchange),
            (format!("{GRANT}&subject_token=%ffsub_a"),                       Looks::LikeForeignExchange),
            (format!("{GRANT}&subject_token=eyJ"),                            Looks::LikeForeignExchange),
            (format!("{GRANT}&subject_token=eyJ&subject_token=sub_a"),        Looks::LikeOurExchange),
            (format!("grant_type=password&{GRANT}&subject_token=sub_a"),      Looks::LikeOurExchange),
            ("grant_type=client_credentials".into(),                          Looks::LikeAnotherGrant),
            ("subject_token=sub_a".into(),                                    Looks::LikeAnotherGrant),
            ("".into(),                                                       Looks::LikeAnotherGrant),
            ("{\"a\": 1}".into(),                                             Looks::LikeAnotherGrant),
        ];
        for (body, looks) in cases {
            assert_eq!(looks_like_exchange(body.as_bytes(), "sub_"), looks, "{body}");
        }
    }

    /// Anybody can send a form, and a worker does nothing else while it reads one. Looking for each name in
    /// all others takes some two hundred times as long for sixteen times the length; what is asked for is
    /// far from that and from sixteen, and one good moment of the machine is enough.
    #[test]
    fn reading_takes_time_in_proportion_to_the_length() {
        let time = |parameters: u32| {
            let names: Vec<_> = (0..parameters).map(|number| format!("{number:x}")).collect();
            let body = names.join("&");
            let started = std::time::Instant::now();
            assert!(Form::parse(body.as_bytes()).is_ok_and(|form| form.get("x").is_none()));
            started.elapsed()
        };
        let linear = (0..20).any(|_| time(16_000) < time(1000) * 64);
        assert!(linear, "1000 parameters take {:?}, 16000 {:?}", time(1000), time(16_000));
    }

    proptest! {
        #[test]
        fn no_body_makes_either_reading_panic(body: Vec<u8>) {
            let _ = looks_like_exchange(&body, "sub_");
            let _ = Form::parse(&body);
        }

        #[test]
        fn reads_what_another_library_wrote(parameters in proptest::collection::btree_map("[a-z]{1,5}", "\\PC{0,12}", 0..6)) {
            let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(&parameters).finish();
            let form = Form::parse(body.as_bytes()).unwrap();
            for (name, value) in &parameters {
                prop_assert_eq!(form.get(name), Some(&**value));
            }
        }
    }
}
