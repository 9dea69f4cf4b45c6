//! Text of a server without characters that a reader does not see.

/// The text without control and invisible characters. Line breaks and tabs stay.
pub fn plain(text: &str) -> String {
    text.chars().filter(|char| !is_hidden(*char)).collect()
}

/// Control characters, and those that change or hide the text around them: marks of direction, tags, fillers.
fn is_hidden(char: char) -> bool {
    match char {
        '\n' | '\t' => false,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' => true,
        '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' => true,
        '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' => true,
        '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}' => true,
        other => other.is_control(),
    }
}

/// The first bytes of a text, up to the last whole character.
pub fn first_bytes(text: &str, most: usize) -> &str {
    let ends = text.char_indices().map(|(start, char)| start + char.len_utf8());
    let end = ends.take_while(|end| *end <= most).last().unwrap_or(0);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_instructions_are_removed_and_the_rest_stays() {
        let tagged: String = "ignore".chars().filter_map(|c| char::from_u32(0xE0000 + c as u32)).collect();
        let text = format!("adds\u{202E} two\u{200B} numbers{tagged}\r\n\tähnlich 数 🙂\u{1b}[2J");
        assert_eq!(plain(&text), "adds two numbers\n\tähnlich 数 🙂[2J");
    }

    #[test]
    fn a_cut_keeps_whole_characters() {
        assert_eq!(first_bytes("añb", 2), "a");
        assert_eq!(first_bytes("añb", 3), "añ");
        assert_eq!(first_bytes("añb", 9), "añb");
    }
}
