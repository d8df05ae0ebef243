use super::*;

#[test]
fn a_bearer_token_is_read_from_the_authorization_header() {
    #[rustfmt::skip]
    let cases: [(Option<&[u8]>, Option<&str>); 11] = [
        (Some(b"Bearer abc"),        Some("abc")),
        (Some(b"bearer abc"),        Some("abc")),
        (Some(b"BEARER   abc  "),    Some("abc")),
        (Some(b"Bearer a b"),        Some("a b")),
        (Some(b"Bearer "),           None),
        (Some(b"Bearer"),            None),
        (Some(b"Basic abc"),         None),
        (Some(b"Bearerabc"),         None),
        (Some(b"Bearer \xff"),       None),
        (Some(b""),                  None),
        (None,                       None),
    ];
    for (header, token) in cases {
        let head = Head { authorization: header.map(<[u8]>::to_vec), ..Head::default() };
        assert_eq!(
            access_token(&head, true),
            token.map(|token| (Scheme::Bearer, token)),
            "{header:?}"
        );
    }
}

#[test]
fn the_scheme_of_a_bound_token_counts_only_where_proofs_are_read() {
    for scheme in ["DPoP", "dpop", "DPOP"] {
        let authorization = Some(format!("{scheme} abc").into_bytes());
        let head = Head { authorization, ..Head::default() };
        assert_eq!(access_token(&head, true), Some((Scheme::Dpop, "abc")), "{scheme}");
        assert_eq!(access_token(&head, false), None, "{scheme}");
    }
}
