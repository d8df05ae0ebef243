//! The pages that `begin` answers with: small documents without script and style.
//!
//! They stand in a tab of the agent, and each text in them may be a stranger's. So texts are
//! escaped, and the policy of the pages loads nothing, should one ever get through.

use std::fmt::Write as _;

use crate::step::Response;

const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the answer with a page.
pub(in crate::issuer) fn response(
    status: u16,
    more: Vec<(&'static str, String)>,
    page: String,
) -> Response {
    let mut headers = vec![
        ("content-type", "text/html; charset=utf-8".to_owned()),
        ("cache-control", "no-store".to_owned()),
        ("content-security-policy", POLICY.to_owned()),
        ("x-content-type-options", "nosniff".to_owned()),
    ];
    headers.extend(more);
    Response { status, headers, body: page.into_bytes() }
}

/// Returns the page that goes on to the first page of the session.
pub(super) fn going_on(landing: &str) -> String {
    let landing = escaped(landing);
    page(
        "The session begins",
        &format!("<meta http-equiv=\"refresh\" content=\"0; url={landing}\">\n"),
        &format!("<p role=\"status\"><a href=\"{landing}\">Go on to the application</a></p>"),
    )
}

/// Returns the page that says why no session begins.
pub(in crate::issuer) fn refused(error: &str, told: &str) -> String {
    let (error, told) = (escaped(error), escaped(told));
    page(
        "The session has not begun",
        "",
        &format!(
            "<p role=\"alert\">{told} (<code>{error}</code>)</p>\n\
             <p>Close this tab, and begin again in the support console.</p>"
        ),
    )
}

fn page(title: &str, head: &str, content: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         {head}<title>{title}</title>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n{content}\n</main>\n</body>\n</html>\n"
    )
}

/// Returns text as the content of an element, or of an attribute in quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' | '<' | '>' | '"' | '\'' => {
                // Writing into a text does not fail.
                let _ = write!(escaped, "&#{};", u32::from(character));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        let hostile = "</title><script>alert('1')</script>\"&lt;";
        for page in [going_on(hostile), refused(hostile, hostile)] {
            assert!(!page.contains("<script") && !page.contains("&lt;"), "{page}");
            assert!(
                page.contains("&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62;&#34;&#38;lt;")
            );
        }
    }
}
