//! Words of a server that is tested, as the lab shows and keeps them.

use super::markdown::is_hidden;

/// Most characters of such a text.
const MOST: usize = 500;

/// A text of a stranger in one line. It is cut if it is long, and holds nothing that would steer a terminal.
pub(crate) fn words(text: &str) -> String {
    let mut chars = text.chars();
    let shown = |char: char| if char.is_whitespace() { ' ' } else { char };
    let cut: String =
        chars.by_ref().take(MOST).map(shown).filter(|char| !is_hidden(*char)).collect();
    let more = if chars.next().is_some() { "…" } else { "" };
    format!("{cut}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_text_is_short_and_steers_nothing() {
        assert_eq!(words("as it is, 방"), "as it is, 방");
        assert_eq!(words("a\u{1b}[2J\r\nb\u{202e}"), "a[2J  b");
        assert_eq!(words(&"x".repeat(1 << 20)).chars().count(), MOST + 1);
    }
}
