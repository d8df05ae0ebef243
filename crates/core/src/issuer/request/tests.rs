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
        assert_eq!(
            bearer_token(&Head { authorization: header.map(<[u8]>::to_vec), ..Head::default() }),
            token,
            "{header:?}"
        );
    }
}
