//! A form body (`application/x-www-form-urlencoded`, RFC 6749 appendix B).
//!
//! A body is read twice. [`looks_like_exchange`] decides whether the request is ours. It accepts
//! any bytes, because a request that is not ours goes on unchanged. [`Form::parse`] then reads the
//! body strictly. It refuses a repeated parameter, a stray percent sign and bytes that are not
//! UTF-8, because the next reader could read them differently. An empty parameter counts as omitted
//! (RFC 6749 §3.2), but not if it is repeated: a parameter must not be included more than once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use percent_encoding::percent_decode;

use super::TOKEN_EXCHANGE;

/// The byte order mark. Some readers remove it, others take it for the beginning of the first name.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The most parameters of a form. RFC 8693 and the client's authentication need 14. A worker does
/// nothing else while it sorts a stranger's names.
const MOST_PARAMETERS: usize = 64;

/// A form in which every parameter is well encoded and occurs once.
pub struct Form<'a> {
    /// The values by name.
    parameters: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

/// Why a form was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// A percent sign stands without two hex digits, or bytes are not UTF-8.
    #[error("the form is not properly encoded")]
    Encoding,
    /// The `charset` is not based on ASCII: see
    /// [`is_ascii_based`](crate::media_type::is_ascii_based).
    #[error("the form is in a charset that is not read")]
    Charset,
    /// A parameter occurs twice (RFC 6749 §3.2). The error does not name it: the name is the
    /// caller's text, and could be a token.
    #[error("a parameter is repeated")]
    Repeated,
    /// There are more than [`MOST_PARAMETERS`] names.
    #[error("too many parameters")]
    TooMany,
    /// `resource` occurs twice. RFC 8693 allows that, but the filter binds a token to one resource.
    #[error("more than one resource")]
    SeveralResources,
}

impl<'a> Form<'a> {
    /// Reads a body strictly.
    pub fn parse(body: &'a [u8]) -> Result<Self, FormError> {
        if body.starts_with(BYTE_ORDER_MARK) {
            return Err(FormError::Encoding);
        }
        let mut parameters: BTreeMap<Cow<'a, str>, Cow<'a, str>> = BTreeMap::new();
        for (name, value) in pairs(body) {
            let name = decode(name).ok_or(FormError::Encoding)?;
            let value = decode(value).ok_or(FormError::Encoding)?;
            let full = parameters.len() == MOST_PARAMETERS;
            match parameters.entry(name) {
                Entry::Vacant(_) if full => return Err(FormError::TooMany),
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => match &**entry.key() {
                    "resource" => return Err(FormError::SeveralResources),
                    // RFC 8693 lets `audience` be repeated. A later check refuses it for another
                    // reason, if one of its values is not empty.
                    "audience" if entry.get().is_empty() => drop(entry.insert(value)),
                    "audience" => {}
                    _ => return Err(FormError::Repeated),
                },
            }
        }
        Ok(Self { parameters })
    }

    /// Leaves out the parameters that have no value (RFC 6749 §3.2).
    pub fn without_empty(mut self) -> Self {
        self.parameters.retain(|_, value| !value.is_empty());
        self
    }

    /// The names of all parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.keys().map(|name| &**name)
    }

    /// The value of a parameter; empty if the parameter has no value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(|value| &**value)
    }
}

/// Prints neither values nor names: in a malformed form a secret can stand in place of a name.
impl fmt::Debug for Form<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Form({} parameters redacted)", self.parameters.len())
    }
}

/// The result of a first look at a form body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// A token exchange whose subject token begins with the given prefix, or is absent.
    LikeOurExchange,
    /// A token exchange with another subject token.
    LikeForeignExchange,
    /// Another grant, or not an OAuth request.
    LikeAnotherGrant,
}

/// Takes a first look at a body, which may have any content and may be cut off.
///
/// If a parameter is repeated, any occurrence counts. The gateway might read another occurrence
/// than the filter, so a body that is ours by one of them must not pass through.
pub fn looks_like_exchange(body: &[u8], prefix: &str) -> Looks {
    let mut exchange = false;
    let mut subject_token = None;
    for (name, value) in pairs(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body)) {
        match decode(name).as_deref() {
            Some("grant_type") => {
                exchange |= decode(value).is_some_and(|value| value == TOKEN_EXCHANGE)
            }
            Some("subject_token") => {
                // Decodes as the most forgiving reader does. If the text behind the prefix is badly
                // encoded, the filter takes the request and refuses it.
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

/// The values of all parameters with this name, decoded as the most forgiving reader does. The body
/// may have any content.
pub fn values(body: &[u8], name: &str) -> Vec<Vec<u8>> {
    let pairs = pairs(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body));
    let named = pairs.filter(|(given, _)| decode(given).is_some_and(|given| given == name));
    named.map(|(_, value)| percent_decode(value).collect()).collect()
}

/// The pairs of name and value, undecoded.
fn pairs(body: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        (halves.next().unwrap_or_default(), halves.next().unwrap_or_default())
    })
}

/// Decodes a name or a value strictly; `None` if it is not well encoded.
pub fn decode(encoded: &[u8]) -> Option<Cow<'_, str>> {
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
    fn a_form_has_names_and_values() {
        let form = Form::parse(b"a=1&b=x+y%20z&empty=&bare&%63=%26").unwrap();
        #[rustfmt::skip]
        let cases = [("a", Some("1")), ("b", Some("x y z")), ("empty", Some("")), ("bare", Some("")), ("c", Some("&")), ("d", None)];
        for (name, value) in cases {
            assert_eq!(form.get(name), value, "{name}");
        }
    }

    #[test]
    fn a_form_that_two_readers_could_read_differently_is_refused() {
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
    fn the_first_look_recognizes_our_exchanges() {
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

    proptest! {
        #[test]
        fn no_body_makes_either_reading_panic(body: Vec<u8>) {
            let _ = looks_like_exchange(&body, "sub_");
            let _ = Form::parse(&body);
        }

        #[test]
        fn a_form_that_another_library_wrote_is_read(parameters in proptest::collection::btree_map("[a-z]{1,5}", "\\PC{0,12}", 0..6)) {
            let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(&parameters).finish();
            let form = Form::parse(body.as_bytes()).unwrap();
            for (name, value) in &parameters {
                prop_assert_eq!(form.get(name), Some(&**value));
            }
        }
    }
}
