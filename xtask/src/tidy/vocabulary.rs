//! Refused words: names that were replaced by the field's terms, and stories about persons.
//!
//! Invariant: every refused word has a replacement, and a word that is common English elsewhere is not refused.

use super::{Tree, Violation};

/// It contains what it refuses.
const THIS_FILE: &str = "xtask/src/tidy/vocabulary.rs";

/// Hand-written files.
const WRITTEN: &[&str] = &["rs", "py", "sh", "md", "toml", "cc", "h"];

/// Text that the embedded model was trained on, and texts of a reference.
const TEXTS: &[&str] = &["training/", "crates/jinja/tests/reference/"];

/// Refused words, and what to write instead.
struct Row {
    refused: &'static [&'static str],
    instead: &'static str,
}

const fn row(refused: &'static [&'static str], instead: &'static str) -> Row {
    Row { refused, instead }
}

/// Words, also inside of identifiers, in any case, and with a plural `s`.
const WORDS: &[Row] = &[
    row(
        &[
            "nobody",
            "somebody",
            "someone",
            "anybody",
            "anyone",
            "everybody",
            "everyone",
            "whoever",
            "whomever",
        ],
        "the client, the request, the sequence or the caller",
    ),
    row(&["told"], "sent, reported or given"),
    row(&["narrator", "narration", "narrate"], "output_processor"),
    row(&["keeper"], "supervisor"),
    row(&["ledger"], "job_journal"),
    row(&["unrest"], "recent_crashes"),
    row(&["chore"], "deferred work"),
    row(&["leisure", "nap"], "idle time"),
    row(&["goodbye"], "shutdown"),
    row(&["disown"], "detach"),
    row(&["bury"], "carry_totals"),
    row(&["shelf"], "disk tier"),
    row(&["stake"], "reclaimable blocks"),
    row(&["takeoff"], "cache_hit_lengths"),
    row(&["likest"], "longest_partial_match"),
    row(&["culprit"], "faulty"),
    row(&["crumb"], "a small chunk"),
    row(&["booking"], "in_flight"),
    row(&["outburst"], "panic"),
    row(&["lent", "lend"], "acquire"),
    row(&["guest"], "background load"),
];

/// Whole identifiers.
const NAMES: &[Row] = &[
    row(&["Begun"], "Allocation"),
    row(&["FlightWork"], "InFlightTokens"),
    row(&["BlockKey"], "BlockHash"),
    row(&["News"], "JobUpdate"),
    row(&["Scored"], "TokenLogprobs"),
    row(&["Wiring"], "NormPlacement"),
    row(&["BlockStep"], "AttentionMetadata"),
    row(&["SlotStep"], "StateMetadata"),
];

/// In lower case, between words.
const PHRASES: &[Row] = &[
    row(&["gives way", "give way"], "is preempted"),
    row(&["rides along", "ride along"], "shares the batch"),
    row(&["asked for", "asks for", "ask for"], "requested"),
];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let is_checked = |path: &str| {
        let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
        WRITTEN.contains(&extension)
            && path != THIS_FILE
            && !TEXTS.iter().any(|folder| path.starts_with(folder))
    };
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| is_checked(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            for (word, instead) in refused(line) {
                let message = format!("`{word}`: write `{instead}` (docs/glossary.md)");
                found.push(Violation { path: file.path.clone(), line: index + 1, message });
            }
        }
    }
    found
}

/// Every refused word of a line, with its replacement.
fn refused(line: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for identifier in line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let row = instead(NAMES, identifier);
        found.extend(row.map(|instead| (identifier.to_owned(), instead)));
        for word in words(identifier) {
            let singular = word.strip_suffix('s').unwrap_or(&word);
            let row = instead(WORDS, &word).or_else(|| instead(WORDS, singular));
            found.extend(row.map(|instead| (word.clone(), instead)));
        }
    }
    let line = line.to_lowercase();
    let rows = PHRASES.iter().flat_map(|row| row.refused.iter().map(|phrase| (*phrase, row.instead)));
    let phrases = rows.filter(|(phrase, _)| super::source::has_word(&line, phrase));
    found.extend(phrases.map(|(phrase, instead)| (phrase.to_owned(), instead)));
    found
}

fn instead(rows: &[Row], word: &str) -> Option<&'static str> {
    rows.iter().find(|row| row.refused.contains(&word)).map(|row| row.instead)
}

/// The words of an identifier, in lower case: of `snake_case` and of `CamelCase`.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_ascii_uppercase() && was_lower) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().into_iter().for_each(|word| word.push(c.to_ascii_lowercase()));
        }
        was_lower = c.is_ascii_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_line(line: &str, expected: &[&str]) {
        let words: Vec<String> = refused(line).into_iter().map(|(word, _)| word).collect();
        assert_eq!(words, expected, "{line}");
    }

    #[test]
    fn the_message_names_the_replacement() {
        assert_eq!(
            found(check, &[("crates/engine/src/a.rs", "\nlet x = narrator();\n")]),
            ["crates/engine/src/a.rs:2: `narrator`: write `output_processor` (docs/glossary.md)"]
        );
    }

    #[test]
    fn refused_words_are_found_in_comments_strings_and_identifiers() {
        check_line("// Nobody waits.", &["nobody"]);
        check_line("\"somebody's keys\"", &["somebody"]);
        check_line("fn is_anybody_waiting(x: NobodyListens)", &["anybody", "nobody"]);
        check_line("two ledgers", &["ledgers"]);
        check_line("GOODBYE", &["goodbye"]);
        check_line("BlockKey", &["BlockKey"]);
        check_line("What is Asked for here", &["asked for"]);
    }

    #[test]
    fn other_words_are_accepted() {
        check_line("bookkeeper, toldo, lentil, block_key, task forks", &[]);
    }

    #[test]
    fn text_of_the_embedded_model_is_exempt() {
        let line = "Nobody knew.\n";
        assert_eq!(
            found(check, &[("training/stories.py", line), ("a.json", line), (THIS_FILE, line)]),
            [""; 0]
        );
        assert_eq!(found(check, &[("docs/a.md", line)]).len(), 1);
    }
}
