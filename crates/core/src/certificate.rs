//! The certificate with which a client has connected, as Envoy reports it.
//!
//! The handshake proved that the client has the private key. Whether an authority vouches for the
//! names in the certificate is for the listener to verify: Envoy reports certificates that it
//! accepted without a check in the same way. The digest needs no authority.
//!
//! Behind a proxy that ends TLS, the connection's certificate is the proxy's. The client's is then
//! in `x-forwarded-client-cert`, which anybody can write whom the proxy and Envoy do not stop. It
//! counts only where the operator says so, and only if it has exactly one element.

use std::borrow::Cow;

use crate::secret::Digest;

/// The header in which proxies forward the certificate of a client.
pub const FORWARDED_CERTIFICATE: &str = "x-forwarded-client-cert";

/// A client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The SHA-256 of the certificate.
    pub digest: Digest,
    /// The subject, as Envoy writes it (RFC 2253).
    pub subject: Option<String>,
    /// The DNS names among the subject's alternative names. Of a connection's certificate Envoy
    /// reports the first only.
    pub dns_names: Vec<String>,
    /// The URIs among the subject's alternative names. Of a connection's certificate Envoy reports
    /// the first only.
    pub uris: Vec<String>,
}

impl ClientCertificate {
    /// Reads the certificate of the connection. `property` returns a property of the connection.
    pub fn of_connection(property: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Self> {
        let digest = digest_of_connection(&property)?;
        let text = |name| String::from_utf8(property(name)?).ok().filter(|text| !text.is_empty());
        Some(Self {
            digest,
            subject: text("subject_peer_certificate"),
            dns_names: text("dns_san_peer_certificate").into_iter().collect(),
            uris: text("uri_san_peer_certificate").into_iter().collect(),
        })
    }

    /// Reads the certificate in `x-forwarded-client-cert`, which must have exactly one element with
    /// exactly one `Hash`.
    pub fn of_header(fields: &[Vec<u8>]) -> Option<Self> {
        let [field] = fields else { return None };
        let mut rest = std::str::from_utf8(field).ok()?;
        let (mut hash, mut subject) = (None, None);
        let (mut dns_names, mut uris) = (Vec::new(), Vec::new());
        loop {
            let (name, value);
            (name, rest) = rest.split_once('=')?;
            (value, rest) = value_and_rest(rest)?;
            let name = name.to_ascii_lowercase();
            let repeats = match &*name {
                "hash" => hash.replace(Digest::from_hex(&value)?).is_some(),
                "subject" => subject.replace(value.into_owned()).is_some(),
                "dns" => {
                    dns_names.push(value.into_owned());
                    false
                }
                "uri" => {
                    uris.push(value.into_owned());
                    false
                }
                _ => false,
            };
            if repeats {
                return None;
            }
            match rest.strip_prefix(';') {
                Some(more) => rest = more,
                // A comma begins the element of another proxy.
                None if rest.is_empty() => break,
                None => return None,
            }
        }
        let subject = subject.filter(|subject| !subject.is_empty());
        Some(Self { digest: hash?, subject, dns_names, uris })
    }
}

/// Reads the digest alone of the certificate of the connection. Each property costs a call of the
/// host.
pub(crate) fn digest_of_connection(property: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Digest> {
    Digest::from_hex(std::str::from_utf8(&property("sha256_peer_certificate_digest")?).ok()?)
}

/// Splits off a value, which may be in double quotes. In quotes a backslash escapes a character.
fn value_and_rest(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end)?;
        return if value.contains('"') { None } else { Some((value.into(), rest)) };
    };
    let mut value = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return Some((value.into(), characters.as_str())),
            '\\' => value.push(characters.next()?),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "0101010101010101010101010101010101010101010101010101010101010101";

    #[test]
    fn a_forwarded_certificate_is_one_element_with_one_hash() {
        let certificate = |subject: Option<&str>, dns: &[&str], uris: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect();
            Some(ClientCertificate {
                digest: Digest::from_bytes([1; 32]),
                subject: subject.map(str::to_owned),
                dns_names: texts(dns),
                uris: texts(uris),
            })
        };
        #[rustfmt::skip]
        let cases = [
            ("a hash",            format!("Hash={HASH}"),                                 certificate(None, &[], &[])),
            ("a proxy's name",    format!("By=spiffe://a;Hash={HASH}"),                   certificate(None, &[], &[])),
            ("small letters",     format!("hash={HASH}"),                                 certificate(None, &[], &[])),
            ("names",             format!("Hash={HASH};Subject=\"CN=a,O=b\";URI=urn:a;DNS=a.example;DNS=b.example"),
                certificate(Some("CN=a,O=b"), &["a.example", "b.example"], &["urn:a"])),
            ("escapes",           format!("Hash={HASH};Subject=\"CN=\\\"a\\\\\""),        certificate(Some("CN=\"a\\"), &[], &[])),
            ("a certificate",     format!("Hash={HASH};Cert=\"-----BEGIN%20\";Chain=\"x\""), certificate(None, &[], &[])),
            ("an empty subject",  format!("Hash={HASH};Subject=\"\""),                    certificate(None, &[], &[])),
            ("no hash",           "Subject=\"CN=a\"".into(),                              None),
            ("two hashes",        format!("Hash={HASH};Hash={HASH}"),                     None),
            ("two elements",      format!("Hash={HASH},Hash={HASH}"),                     None),
            ("an empty element",  format!("Hash={HASH},"),                                None),
            ("in a quote",        format!("Subject=\"CN=a;Hash={HASH}\""),                None),
            ("a hash in a name",  format!("DNS=a\";Hash={HASH}"),                         None),
            ("an open quote",     format!("Hash={HASH};Subject=\"CN=a"),                  None),
            ("text after quotes", format!("Hash={HASH};Subject=\"CN=a\"b"),               None),
            ("a short hash",      format!("Hash={}", HASH.split_at(1).1),                         None),
            ("nothing",           String::new(),                                          None),
        ];
        for (case, header, expected) in cases {
            assert_eq!(ClientCertificate::of_header(&[header.into_bytes()]), expected, "{case}");
        }
        let field = format!("Hash={HASH}").into_bytes();
        assert_eq!(ClientCertificate::of_header(&[field.clone(), field]), None, "two fields");
        assert_eq!(ClientCertificate::of_header(&[]), None, "no field");
    }

    #[test]
    fn a_connection_has_a_certificate_only_if_envoy_reports_its_digest() {
        for digest in ["", "0101", &HASH.replace('0', "x")] {
            let property = |_: &str| Some(digest.as_bytes().to_vec());
            assert_eq!(ClientCertificate::of_connection(property), None, "{digest:?}");
        }
        assert_eq!(ClientCertificate::of_connection(|_| None), None);
    }

    proptest! {
        #[test]
        fn no_header_makes_the_parser_panic(header: Vec<u8>, text in "([A-Za-z]{1,4}=\"?[^;]*[;,]?){0,4}") {
            let _ = ClientCertificate::of_header(&[header]);
            let _ = ClientCertificate::of_header(&[text.into_bytes()]);
        }
    }
}
