//! Makes text from the network safe to print: no name can control a terminal or imitate another
//! name.

use std::fmt::Write as _;

use impersonation_core::moves_text;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The sign for omitted text.
const ELLIPSIS: char = '…';

/// The part of a text that is kept if there is no room for all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Beginning,
    End,
}

/// Escapes all characters that a terminal would act on or not show. Also escapes the backslash, so
/// that no name can imitate an escape.
pub(super) fn escaped(text: &str) -> String {
    // Nearly all text is plain, and `report` writes millions of names.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\') {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let invisible = character != ' ' && character.width().unwrap_or(0) == 0;
        if character == '\\' {
            shown.push_str("\\\\");
        } else if character.is_control() || moves_text(character) || invisible {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns how many columns of a terminal the text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Shortens the text to at most `columns` columns, with an ellipsis where text was cut.
pub(super) fn shortened(text: &str, columns: usize, keep: Keep) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut room = columns.saturating_sub(1);
    let mut fits = |character: &char| {
        let needed = character.width().unwrap_or(0);
        let enough = needed <= room;
        room = room.saturating_sub(needed);
        enough
    };
    match keep {
        Keep::Beginning => {
            let mut kept: String = text.chars().take_while(|next| fits(next)).collect();
            kept.push(ELLIPSIS);
            kept
        }
        Keep::End => {
            let mut kept: Vec<_> = text.chars().rev().take_while(|next| fits(next)).collect();
            kept.push(ELLIPSIS);
            kept.into_iter().rev().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_control_a_terminal_or_imitate_another() {
        #[rustfmt::skip]
        let cases = [
            ("user-42",                 "user-42"),
            ("Zoë O'Neill",             "Zoë O'Neill"),
            ("田中",                     "田中"),
            ("a\u{1b}[2Jb",             "a\\u{1b}[2Jb"),
            ("a\u{9b}31mb",             "a\\u{9b}31mb"),
            ("a\nb\tc\u{7f}",           "a\\u{a}b\\u{9}c\\u{7f}"),
            ("\u{202e}nimda",           "\\u{202e}nimda"),
            ("ad\u{200b}min\u{e0041}",  "ad\\u{200b}min\\u{e0041}"),
            ("e\u{301}",                "e\\u{301}"),
            (r"\u{1b}",                 r"\\u{1b}"),
        ];
        for (text, shown) in cases {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn a_long_text_is_shortened_to_its_column() {
        #[rustfmt::skip]
        let cases = [
            ("agent-1",     7,  Keep::Beginning,    "agent-1"),
            ("agent-1",     6,  Keep::Beginning,    "agent…"),
            ("agent-1",     4,  Keep::End,          "…t-1"),
            ("田中太郎",      6,  Keep::Beginning,    "田中…"),
            ("田中太郎",      4,  Keep::End,          "…郎"),
            ("ab",          1,  Keep::Beginning,    "…"),
            ("",            0,  Keep::Beginning,    ""),
        ];
        for (text, columns, keep, left) in cases {
            assert_eq!(shortened(text, columns, keep), left, "{text} to {columns}");
        }
    }
}
