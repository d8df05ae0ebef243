//! The page of live impersonations: one document with its script and its style, for whoever is on
//! call.
//!
//! The page is public, and knows nothing but the configuration of its sign-in. Every right is
//! decided where the page's requests arrive, at the endpoints of the list and of its ends. Script
//! and style stand in the document, so a page of one release never loads a part of another's.
//!
//! The build has compressed all of the document but its end, as the beginning of a gzip file
//! (RFC 1952). The end is the configuration. The filter appends it in blocks that are stored, not
//! compressed (RFC 1951 §3.2.4), so it neither compresses nor decompresses anything.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::request::Head;
use crate::config::{Config, Problem};
use crate::step::Response;

/// The most bytes of a block that is stored: its length has 16 bits.
const LONGEST_BLOCK: usize = 0xffff;

/// The page as its build has made it: see `console/build.js`.
#[derive(Debug, Clone, Copy)]
pub struct BuiltPage {
    /// The beginning of a gzip file, which ends at a whole byte.
    pub gzip: &'static [u8],
    /// The facts that the end needs: a JSON object with the checksum and the length of the document
    /// so far, and the header fields of the answer.
    pub manifest: &'static str,
    /// The banner of browser sessions: a script, as a whole gzip file.
    pub banner: &'static [u8],
}

#[cfg(any(test, feature = "fakes"))]
impl BuiltPage {
    /// A page of one line, `<p>page</p>`, in a stored block. The banner is one line, too.
    pub const ONE_LINE: Self = Self {
        gzip: b"\x1f\x8b\x08\0\0\0\0\0\x02\xff\0\x0c\0\xf3\xff<p>page</p>\n",
        manifest: r#"{"crc32": 1900388924, "length": 12, "headers": {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": "default-src 'none'"
        }}"#,
        banner: b"\x1f\x8b\x08\0\0\0\0\0\x02\xff\x01\n\0\xf5\xff// banner\n\x81,Xh\n\0\0\0",
    };
}

#[derive(Deserialize)]
struct Manifest<'m> {
    crc32: u32,
    length: u32,
    #[serde(borrow)]
    headers: BTreeMap<&'m str, String>,
}

/// The page of one configuration.
pub(crate) struct ConsolePage {
    headers: Vec<(&'static str, String)>,
    beginning: &'static [u8],
    end: Vec<u8>,
}

/// The configuration that the page reads: see `console/src/configuration.js`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageConfiguration<'c> {
    issuer: &'c str,
    discovery: &'c str,
    client_id: &'c str,
    scopes: &'c [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'c str>,
    impersonations: &'c str,
    /// The page shows what waits for approval if anybody may approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals: Option<&'c str>,
}

impl ConsolePage {
    /// Completes the page with its configuration; `None` if there is none.
    pub(super) fn of(config: &Config, built: Option<BuiltPage>) -> Result<Option<Self>, Problem> {
        let Some(console) = &config.console else { return Ok(None) };
        let problem =
            |expected: &str| Problem { path: "console".into(), expected: expected.into() };
        let built = built.ok_or_else(|| {
            problem(
                "is not possible: this module was built without the page of live impersonations",
            )
        })?;
        let manifest: Manifest<'static> = serde_json::from_str(built.manifest)
            .map_err(|_| problem("is not possible: the page in this module is broken"))?;
        let told = PageConfiguration {
            issuer: &config.issuer,
            discovery: &config.paths.discovery,
            client_id: &console.client_id,
            scopes: &console.scopes,
            resource: console.resource.as_deref(),
            impersonations: &config.paths.impersonations,
            approvals: config.paths.approvals.as_deref(),
        };
        let mut headers: Vec<_> = manifest.headers.into_iter().collect();
        headers.push(("content-encoding", "gzip".to_owned()));
        headers.push(("vary", "accept-encoding".to_owned()));
        let end = end_of_gzip(element(&told).as_bytes(), manifest.crc32, manifest.length);
        Ok(Some(Self { headers, beginning: built.gzip, end }))
    }

    /// Answers a request for the page.
    pub(super) fn answer(&self, head: &Head) -> Response {
        in_gzip(head, self.headers.clone(), || [self.beginning, &self.end].concat())
    }
}

/// Returns the banner of browser sessions; `None` if the configuration has none.
pub(super) fn banner_of(
    config: &Config,
    built: Option<BuiltPage>,
) -> Result<Option<&'static [u8]>, Problem> {
    if config.browser_sessions.is_none() {
        return Ok(None);
    }
    let built = built.ok_or_else(|| Problem {
        path: "browser_sessions".into(),
        expected: "is not possible: this module was built without the banner".into(),
    })?;
    Ok(Some(built.banner))
}

/// Answers a request for the banner. Pages of the same host alone load it.
pub(super) fn banner(gzip: &[u8], head: &Head) -> Response {
    let headers = [
        ("content-type", "text/javascript; charset=utf-8"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("cross-origin-resource-policy", "same-origin"),
        ("content-encoding", "gzip"),
        ("vary", "accept-encoding"),
    ];
    in_gzip(head, headers.map(|(name, value)| (name, value.to_owned())).to_vec(), || gzip.to_vec())
}

/// Answers with a gzip file. There is no other form of it, and every browser reads gzip.
fn in_gzip(
    head: &Head,
    headers: Vec<(&'static str, String)>,
    body: impl FnOnce() -> Vec<u8>,
) -> Response {
    if !accepts_gzip(head.accept_encoding.as_deref()) {
        let told = "this page is sent with the content coding gzip only";
        let refusal = Refusal::new(406, "invalid_request", "not_acceptable", told);
        let mut response = refusal.into_response();
        response.headers.push(("vary", "accept-encoding".to_owned()));
        return response;
    }
    Response { status: 200, headers, body: body() }
}

/// Writes the element with the page's configuration, as the end of the document. No `<` of a value
/// can end the element.
fn element(told: &PageConfiguration<'_>) -> String {
    // Strings and lists of strings can always be serialized.
    let json = serde_json::to_string(told).unwrap_or_default().replace('<', "\\u003c");
    format!("<script type=\"application/json\" id=\"configuration\">{json}</script>\n")
}

/// Writes the end of a gzip file whose beginning has this checksum and length, uncompressed.
fn end_of_gzip(text: &[u8], crc32_before: u32, length_before: u32) -> Vec<u8> {
    let mut end = Vec::new();
    let mut blocks = text.chunks(LONGEST_BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let is_last = blocks.peek().is_none();
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        end.push(u8::from(is_last));
        end.extend(length.to_le_bytes());
        end.extend((!length).to_le_bytes());
        end.extend(block);
    }
    // RFC 1952 §2.3.1: the length modulo 2^32.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).wrapping_add(length_before);
    end.extend(crc32(text, crc32_before).to_le_bytes());
    end.extend(length.to_le_bytes());
    end
}

/// The CRC-32 of `bytes` after bytes whose checksum is `before` (RFC 1952 §8).
fn crc32(bytes: &[u8], before: u32) -> u32 {
    let by_one_bit = |crc: u32, _: u32| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
    let by_one_byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), by_one_bit);
    !bytes.iter().fold(!before, by_one_byte)
}

/// Returns true if `Accept-Encoding` allows gzip (RFC 9110 §12.5.3). Without the field, any coding
/// is allowed.
fn accepts_gzip(accept_encoding: Option<&[u8]>) -> bool {
    let Some(field) = accept_encoding else { return true };
    let field = field.to_ascii_lowercase();
    let weight_of = |wanted: &[&[u8]]| {
        field.split(|byte| *byte == b',').find_map(|item| {
            let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            wanted.contains(&parts.next()?).then(|| parts.next())
        })
    };
    // A weight of 0 excludes the coding.
    let is_zero = |weight: &[u8]| {
        weight.strip_prefix(b"q=").is_some_and(|digits| {
            digits.first() == Some(&b'0') && digits.iter().all(|digit| b"0.".contains(digit))
        })
    };
    match weight_of(&[b"gzip", b"x-gzip"]).or_else(|| weight_of(&[b"*"])) {
        Some(weight) => !weight.is_some_and(is_zero),
        None => false,
    }
}

#[cfg(test)]
mod tests;
