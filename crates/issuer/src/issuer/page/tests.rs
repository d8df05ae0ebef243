use super::*;

/// Reads blocks that are stored (RFC 1951 §3.2.4), up to the last one. Returns the text, and the
/// bytes after it.
fn stored(mut bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut text = Vec::new();
    loop {
        let (&[is_last, low, high, not_low, not_high], rest) = bytes.split_first_chunk().unwrap();
        assert_eq!((!low, !high), (not_low, not_high));
        let (block, rest) = rest.split_at(usize::from(u16::from_le_bytes([low, high])));
        text.extend(block);
        match is_last {
            0 => bytes = rest,
            1 => return (text, rest),
            other => panic!("a block of another kind: {other}"),
        }
    }
}

#[test]
fn the_checksum_is_that_of_gzip_and_goes_on_after_earlier_bytes() {
    assert_eq!(crc32(b"", 0), 0);
    assert_eq!(crc32(b"123456789", 0), 0xcbf4_3926);
    assert_eq!(crc32(b"6789", crc32(b"12345", 0)), 0xcbf4_3926);
}

#[test]
fn the_end_has_its_text_in_stored_blocks_and_then_checksum_and_length_of_the_whole() {
    for length in [1, 300, LONGEST_BLOCK, LONGEST_BLOCK + 1, 200_000] {
        let text: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let end = end_of_gzip(&text, crc32(b"before", 0), 6);
        let (read, trailer) = stored(&end);
        assert_eq!(read, text, "{length}");
        let whole = [b"before", &*text].concat();
        let expected = [crc32(&whole, 0).to_le_bytes(), (whole.len() as u32).to_le_bytes()];
        assert_eq!(trailer, expected.concat(), "{length}");
    }
}

#[test]
fn no_value_ends_the_element_of_the_configuration() {
    let hostile = "</script><script>alert(1)</script><!--";
    let scopes = [hostile.to_owned()];
    let element = element(&PageConfiguration {
        issuer: hostile,
        discovery: hostile,
        client_id: hostile,
        scopes: &scopes,
        resource: Some(hostile),
        impersonations: hostile,
        approvals: Some(hostile),
    });
    let json = element.strip_prefix("<script type=\"application/json\" id=\"configuration\">");
    let json = json.unwrap().strip_suffix("</script>\n").unwrap();
    assert!(!json.contains('<'), "{json}");
    let read: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(read["clientId"], hostile);
    assert_eq!(read["scopes"][0], hostile);
}

#[test]
fn gzip_is_accepted_unless_the_field_excludes_it() {
    #[rustfmt::skip]
    let cases: [(Option<&str>, bool); 20] = [
        (None,                                  true),
        (Some("gzip"),                          true),
        (Some("gzip, deflate, br, zstd"),       true),
        (Some("br;q=1, GZip;q=0.5"),            true),
        (Some("br , gzip ; q=0.001"),           true),
        (Some("x-gzip"),                        true),
        (Some("*"),                             true),
        (Some("identity, *;q=0.1"),             true),
        (Some("*;q=0, gzip"),                   true),
        (Some("gzip;q=1.0"),                    true),
        (Some(""),                              false),
        (Some("identity"),                      false),
        (Some("br, deflate"),                   false),
        (Some("gzip;q=0"),                      false),
        (Some("GZIP ; Q=0.000, br"),            false),
        (Some("*, gzip;q=0"),                   false),
        (Some("*;q=0"),                         false),
        (Some("gzipped"),                       false),
        (Some("\u{fffd};gzip"),                 false),
        (Some(",;,"),                           false),
    ];
    for (field, accepted) in cases {
        assert_eq!(accepts_gzip(field.map(str::as_bytes)), accepted, "{field:?}");
    }
}
