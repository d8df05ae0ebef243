use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn read(body: &[u8], max_context_bytes: usize) -> Result<MintRequest, Refusal> {
    let head = Head { content_type: Some(b"application/json".to_vec()), ..Head::default() };
    MintRequest::read(&head, &Body::Whole(body.to_vec()), max_context_bytes)
}

#[test]
fn the_context_is_kept_as_compact_json_in_its_own_order() {
    let body = b" {\"context\": {\"z\": 1.50, \"a\": [null, \"\\u00fc\"]}, \"userId\": \"u\"}\n";
    let MintRequest { grant, .. } = read(body, 4096).unwrap();
    assert_eq!(grant.user_id, "u");
    assert_eq!(grant.context, "{\"z\":1.5,\"a\":[null,\"ü\"]}");
    assert_eq!(read(b"{\"userId\": \"u\"}", 4096).unwrap().grant.context, "{}");
}

#[test]
fn the_length_of_a_user_id_is_counted_in_characters() {
    #[rustfmt::skip]
    let cases = [
        ("u".to_owned(),            true),
        (" ".to_owned(),            true),
        ("auth0|5f7c".to_owned(),   true),
        ("\u{1f9d1}".repeat(255),   true),
        ("\u{1f9d1}".repeat(256),   false),
        (String::new(),             false),
        ("a\nb".to_owned(),         false),
        ("\u{7f}".to_owned(),       false),
        ("\u{9b}".to_owned(),       false),
    ];
    for (user_id, good) in cases {
        assert_eq!(is_user_id(&user_id), good, "{user_id:?}");
    }
}

#[test]
fn the_length_of_a_context_is_that_of_its_compact_json() {
    let body = b"{\"userId\": \"u\", \"context\": {   \"a\"  :  \"bc\"   }}";
    let len = "{\"a\":\"bc\"}".len();
    assert!(read(body, len).is_ok());
    let refusal = read(body, len.saturating_sub(1)).unwrap_err();
    assert_eq!(refusal.reason(), "context_too_long");
    assert!(refusal.to_string().contains("longer than 9 bytes"), "{refusal}");
}

proptest! {
    #[test]
    fn the_parser_never_panics(body: Vec<u8>) {
        let _ = read(&body, 64);
    }

    #[test]
    fn an_accepted_request_keeps_the_rules(
        user_id in "\\PC{0,4}|[\\x00-\\x20]{1,2}",
        context in proptest::option::of("[{}\\[\\]:,\"0-9a-z]{0,24}"),
        rest in vec("[{}\\[\\]:,\"0-9a-z ]{0,8}", 0..2),
    ) {
        let context = context.map_or(String::new(), |context| format!(",\"context\":{context}"));
        let body = format!("{{\"userId\":{}{context}}}{}", Value::from(user_id), rest.concat());
        if let Ok(MintRequest { grant, .. }) = read(body.as_bytes(), 16) {
            prop_assert!(is_user_id(&grant.user_id));
            prop_assert!(grant.context.len() <= 16);
            prop_assert!(serde_json::from_str::<Value>(&grant.context).unwrap().is_object());
        }
    }
}
