//! What names may not hold: people see names beside each other, and must see all that is in them.

/// Joins two characters, or keeps them apart: emoji and several scripts need these within a word.
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];

/// Whether nobody sees a character, or it changes how the text around it looks. Such are controls, ends of lines, and characters without
/// width or ink. Others turn the direction of text (Unicode Standard Annex 9).
pub(crate) fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Whether a room may have this id.
///
/// # Errors
/// What an id may be.
pub(crate) fn check_room(id: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // These two have a meaning of their own in addresses.
    if (1..=64).contains(&id.len()) && id.chars().all(fits) && id != "." && id != ".." {
        return Ok(());
    }
    Err("a room's id is 1 to 64 of A-Z a-z 0-9 - _ . and not . or .. alone".into())
}

/// Whether a name holds nothing that is hidden.
///
/// # Errors
/// Which character is wrong, and what helps. `what` says whose name it is.
pub(crate) fn check(what: &str, name: &str) -> Result<(), String> {
    let mut before = None;
    let mut chars = name.chars().peekable();
    while let Some(char) = chars.next() {
        let ends = |at: Option<char>| {
            at.is_none_or(|at| at.is_whitespace() || JOINERS.contains(&at) || is_hidden(at))
        };
        let alone = JOINERS.contains(&char) && (ends(before) || ends(chars.peek().copied()));
        if is_hidden(char) || alone {
            let code = u32::from(char);
            return Err(format!(
                "{what} has the character U+{code:04X}, a control character or one that nobody sees: leave it out"
            ));
        }
        before = Some(char);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_people_everywhere_are_taken_and_what_is_hidden_is_not() {
        for name in
            ["Ann", "김모임", "Zoë O'Neil-Śmith", "👩‍👩‍👧", "می‌خواهم", "अ‍क्", "❤️ heart", "محمد", "שלום"]
        {
            assert_eq!(check("the name", name), Ok(()), "{name}");
        }
        let hidden = "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\
                      \u{61c}\u{200b}\u{2060}\u{feff}\u{ad}\u{3164}\u{2028}\u{2029}\u{e0041}\u{0}\n\u{7f}\u{85}";
        for char in hidden.chars() {
            let told = check("the name", &format!("A{char}n")).unwrap_err();
            assert!(told.contains(&format!("U+{:04X}", u32::from(char))), "{told}");
        }
        for name in ["\u{200d}Ann", "Ann\u{200d}", "A\u{200d}\u{200d}n", "A \u{200c}n"] {
            assert!(check("the name", name).unwrap_err().contains("U+200"), "{name:?}");
        }
    }
}
