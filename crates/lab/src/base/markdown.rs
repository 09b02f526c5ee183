//! Text of others within a document in Markdown.

/// A text as it is, in one line, whatever stands in it: as a word, in a list or in a cell of a table. What would mark something is escaped,
/// and what nobody sees is left out (Unicode Standard Annex 9: some of it turns the text around it).
pub(crate) fn inline(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    for (at, char) in chars.iter().enumerate() {
        let is_word = |at: Option<usize>| {
            at.and_then(|at| chars.get(at)).is_some_and(|char| char.is_alphanumeric())
        };
        match char {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => out.push(' '),
            _ if is_hidden(*char) => {}
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            // Within a word it marks nothing.
            '_' if is_word(at.checked_sub(1)) && is_word(Some(at + 1)) => out.push('_'),
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '~' | '#' | '!' => out.extend(['\\', *char]),
            _ => out.push(*char),
        }
    }
    out
}

/// Whether nobody sees this character.
pub(crate) fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_a_mark() {
        assert_eq!(inline("a | b\n## c"), "a \\| b \\#\\# c");
        assert_eq!(inline("`x` *y* _z_ [a](b) <b> & ![i](u)"), {
            "\\`x\\` \\*y\\* \\_z\\_ \\[a\\](b) &lt;b> &amp; \\!\\[i\\](u)"
        });
        assert_eq!(inline("a\\|b"), "a\\\\\\|b", "an escape of its own escapes nothing");
        assert_eq!(inline("loss_pct p95 < 1.5"), "loss_pct p95 &lt; 1.5");
        assert_eq!(inline("a\u{202e}b\u{0}c\r\nd\u{2028}e"), "abc  d e");
    }
}
