//! Message boundaries of conversations, with a one-line template and with those of published models.

use std::path::{Path, PathBuf};

use omnibus_model::Source;
use omnibus_testing::reference::{TEMPLATES, found};
use omnibus_text::AddSpecial;

use super::*;
use crate::front::ModelText;
use crate::request::{Chat, Input};
use crate::settings::Settings;

fn messages(roles: &[&str]) -> Vec<Message> {
    roles.iter().map(|role| Message::new(Role::from(*role), "x")).collect()
}

/// Each message is one token of text and an end token, 0.
fn boundaries(roles: &[&str], prompt: &[u32]) -> MessageBoundaries {
    type Silent<'a> = Rendered<'a, std::iter::Empty<Vec<u8>>, fn(&[Message]) -> Option<String>>;
    MessageBoundaries::of(&messages(roles), prompt, |token| token == 0, None::<Silent<'_>>)
}

#[test]
fn history_lies_between_the_first_user_message_and_the_newest_message() {
    let all = boundaries(&["system", "user", "assistant", "user"], &[1, 0, 2, 0, 3, 0, 4, 0, 9]);
    assert_eq!((all.ends, all.history), (vec![2, 4, 6, 8], 4..6));
    let added = boundaries(&["user", "assistant", "user"], &[1, 0, 2, 0, 3, 0, 4, 0, 9]);
    assert_eq!(added.history, 4..6);
    assert_eq!(boundaries(&["system", "user"], &[1, 0, 2, 0, 9]).history, 0..0, "nothing came before");
    assert_eq!(boundaries(&["user", "assistant", "user"], &[1, 2, 0, 3]).history, 0..0);
}

#[test]
fn boundaries_come_from_renderings_where_tokens_do_not_show_them() {
    let conversation = messages(&["system", "user", "assistant", "user"]);
    // One character per token; the template refuses to end with a system message.
    let render = |messages: &[Message]| match messages {
        [only] if only.role == Role::System => None,
        messages => Some(messages.iter().map(|m| format!("<{}>", m.text().unwrap())).collect()),
    };
    let text = "<x><x><x><x>ANSWER";
    let pieces = text.bytes().map(|byte| vec![byte]);
    let prompt: Vec<u32> = text.bytes().map(u32::from).collect();
    let found =
        MessageBoundaries::of(&conversation, &prompt, |_| false, Some(Rendered { text, pieces, render }));
    assert_eq!(
        (found.ends, found.history),
        (vec![4, 6, 9, 12], 6..9),
        "the first, up to the next one's text"
    );
}

#[test]
fn tokens_that_do_not_spell_the_text_give_no_boundaries() {
    let spell = |pieces: &[&str]| places("<s>a b", pieces.iter().map(|p| p.as_bytes().to_vec()), &[3, 4, 6]);
    assert_eq!(spell(&["<s>", "a", " b"]), Some(vec![1, 2, 3]));
    assert_eq!(spell(&["<s>", " a", " b"]), Some(vec![1, 2, 3]), "a space of its own");
    assert_eq!(spell(&["<s>", "a", "b"]), Some(vec![1, 2, 3]), "a space that was taken in");
    assert_eq!(spell(&["<s>a", " b"]), Some(vec![0, 1, 2]), "within a token, the one before counts");
    assert_eq!(spell(&["<s>", "A", " b"]), None);
}

const TEXTS: [&str; 7] = [
    "Instructions about buses",
    "First question about stops",
    "First answer about stops",
    "Second question about tickets",
    "Second answer about tickets",
    "Third question about drivers",
    "Third answer about drivers",
];

/// The conversation's first messages, with or without the system's.
fn conversation(range: Range<usize>) -> Vec<Message> {
    let role = |at: usize| match at {
        0 => Role::System,
        at if at % 2 == 1 => Role::User,
        _ => Role::Assistant,
    };
    let texts = TEXTS.iter().enumerate().take(range.end).skip(range.start);
    texts.map(|(at, text)| Message::new(role(at), *text)).collect()
}

/// Messages without a boundary after their text and before the next one's.
fn missed(messages: &[Message], shown: &str, before: &[usize]) -> Vec<usize> {
    let content = |at: usize| messages.get(at).and_then(Message::text);
    let start = |at: usize| content(at).and_then(|content| shown.find(&content));
    let newest = messages.len().saturating_sub(NEWEST);
    (newest..messages.len())
        .filter(|at| {
            let Some(begins) = start(*at) else { return false };
            let ends = begins + content(*at).map_or(0, |content| content.len());
            let next = start(at + 1).unwrap_or(shown.len());
            !before.iter().any(|place| (ends..=next).contains(place))
        })
        .collect()
}

fn shown(text: &ModelText, tokens: &[u32]) -> String {
    String::from_utf8_lossy(&text.pieces(tokens).unwrap().concat()).into_owned()
}

/// The tokenizer is not the templates', so no end token of theirs is one token.
#[test]
fn boundaries_are_found_with_published_templates() {
    for found in found(TEMPLATES) {
        let paths = found.files(".jinja");
        found.assert_count(paths.len(), 70);
        check_templates(&paths);
    }
}

fn check_templates(paths: &[PathBuf]) {
    let mini = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
    let (mut ends, mut all_missed, mut turns_taken, mut rewritten) = (0, Vec::new(), 0, Vec::new());
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let template = std::fs::read_to_string(path).unwrap();
        let text = ModelText::read(&Source::Directory(mini.clone()), &with_template(template)).unwrap();
        let prompt_of = |range: Range<usize>| {
            let input = Input::Chat(Chat { messages: conversation(range), ..Chat::default() });
            Some((text.prompt(&input, AddSpecial::Yes, usize::MAX, 0).ok()?, input))
        };
        for (first, count) in [(0, 2), (1, 2), (0, 4), (1, 4), (0, 6), (1, 6)] {
            let (messages, case) = (conversation(first..count), format!("{name}, {first} to {count}"));
            let Some((prompt, input)) = prompt_of(first..count) else { continue };
            let boundaries = text.message_boundaries(&input, &prompt);
            assert!(boundaries.ends.is_sorted_by(|one, other| one < other), "{case}: {boundaries:?}");
            assert!(
                boundaries.ends.iter().all(|end| (1..=prompt.tokens.len()).contains(end)),
                "{case}: {boundaries:?}"
            );
            assert!(boundaries.history.end <= prompt.tokens.len(), "{case}: {boundaries:?}");
            let before: Vec<usize> =
                boundaries.ends.iter().map(|end| shown(&text, &prompt.tokens[..*end]).len()).collect();
            let missed = missed(&messages, &shown(&text, &prompt.tokens), &before);
            ends += messages.len().min(NEWEST);
            all_missed.extend(missed.into_iter().map(|at| format!("{case}: message {at}")));
            // The next request starts from here.
            let newest = boundaries.ends.last().map_or(0, |end| *end);
            if let Some((next, _)) = prompt_of(first..count + 2).filter(|_| count + 2 <= TEXTS.len()) {
                turns_taken += 1;
                if !next.tokens.starts_with(&prompt.tokens[..newest]) {
                    rewritten.push(case);
                }
            }
        }
    }
    println!("{} of {ends} ends missed: {all_missed:#?}", all_missed.len());
    println!("{} of {turns_taken} next turns begin otherwise: {rewritten:#?}", rewritten.len());
    assert!(
        all_missed.len() * 200 <= ends,
        "{} of {ends} missed:\n{}",
        all_missed.len(),
        all_missed.join("\n")
    );
    assert!(rewritten.len() * 20 <= turns_taken, "{rewritten:#?}");
}

fn with_template(template: String) -> Settings {
    Settings { chat_template: Some(template), ..Settings::default() }
}
