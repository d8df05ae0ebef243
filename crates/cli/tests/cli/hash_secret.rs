//! Tests of `hash-secret`: the hash that a configuration holds instead of a client's secret.

use crate::{command, stdout, with_input};

#[test]
fn a_secret_is_hashed_without_the_line_break_at_its_end() {
    // SHA-256("abc") is the example of FIPS 180-2, appendix B.1.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";
    #[rustfmt::skip]
    let cases: &[(&[u8], Option<&str>)] = &[
        (b"abc",        Some(abc)),
        (b"abc\n",      Some(abc)),
        (b"abc\r\n",    Some(abc)),
        (b"",           None),
        (b"\n",         None),
        (b"abc\n\n",    None),
        (b"abc\ndef",   None),
        (b"\xff",       None),
    ];
    for (input, digest) in cases {
        let output = with_input(&["hash-secret"], input);
        assert_eq!(output.status.code(), Some(if digest.is_some() { 0 } else { 2 }), "{input:?}");
        assert_eq!(stdout(&output), digest.unwrap_or_default(), "{input:?}");
    }
    assert_ne!(stdout(&with_input(&["hash-secret"], b" abc")), abc);
    assert_eq!(command(&["hash-secret", "abc"]).output().unwrap().status.code(), Some(2));
}
