//! The `scope` parameter (RFC 6749 §3.3): tokens with one space between them.

/// Returns true if `text` is one scope token.
pub fn is_scope_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// The tokens of a `scope` parameter; `None` if its syntax is bad.
pub fn parse(scope: &str) -> Option<Vec<&str>> {
    let tokens: Vec<_> = scope.split(' ').collect();
    tokens.iter().all(|token| is_scope_token(token)).then_some(tokens)
}

/// The scope tokens of `requested` that are `allowed`, in the order of the request, each once.
pub fn cut<'a>(requested: &[&'a str], allowed: &[String]) -> Vec<&'a str> {
    let mut granted = Vec::new();
    for token in requested {
        if allowed.iter().any(|scope| scope == token) && !granted.contains(token) {
            granted.push(*token);
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_follows_the_grammar_of_rfc_6749_section_3_3() {
        #[rustfmt::skip]
        let cases = [
            ("openid",          Some(vec!["openid"])),
            ("a:read b:write",  Some(vec!["a:read", "b:write"])),
            ("!#[]~",           Some(vec!["!#[]~"])),
            ("",                None),
            (" a",              None),
            ("a  b",            None),
            ("a\tb",            None),
            ("a\"b",            None),
            ("a\\b",            None),
            ("é",               None),
        ];
        for (scope, tokens) in cases {
            assert_eq!(parse(scope), tokens, "{scope:?}");
        }
    }

    #[test]
    fn a_scope_token_is_granted_once_if_it_is_requested_and_allowed() {
        let allowed = ["read".to_owned(), "write".to_owned()];
        assert_eq!(cut(&["write", "admin", "read", "write"], &allowed), ["write", "read"]);
    }
}
