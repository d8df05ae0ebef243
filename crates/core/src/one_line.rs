//! JSON on one line, for logs that programs and people read line by line.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

/// Writes a value as JSON on one line. JSON itself escapes only the ASCII controls. Some programs
/// end a line at other characters too, and some characters change the direction of text: these are
/// escaped as well, so that text of a caller can neither end the line nor hide a part of it.
pub fn one_line(value: &impl Serialize) -> String {
    let mut line = Vec::with_capacity(512);
    match value.serialize(&mut serde_json::Serializer::with_formatter(&mut line, OneLine)) {
        Ok(()) => String::from_utf8(line).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Nearly all text is ASCII, in which the serialiser escapes every control but DEL.
        let plain = fragment.is_ascii() && !fragment.as_bytes().contains(&0x7f);
        if plain || !fragment.contains(moves_text) {
            return writer.write_all(fragment.as_bytes());
        }
        for character in fragment.chars() {
            if moves_text(character) {
                // All of them are in the basic multilingual plane, so four digits are enough.
                write!(writer, "\\u{:04x}", u32::from(character))?;
            } else {
                write!(writer, "{character}")?;
            }
        }
        Ok(())
    }
}

/// Returns true for line and paragraph separators, controls from DEL on, and the marks that change
/// the direction of text.
pub const fn moves_text(character: char) -> bool {
    matches!(
        character,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}
