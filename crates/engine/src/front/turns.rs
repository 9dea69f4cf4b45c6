//! Where the messages of a conversation lie in its tokens, as far as the tokens themselves say it.
//!
//! Chat templates end messages with the tokens that models end their answers with. Templates that end only some of
//! them so give fewer places; nothing here is relied on for more than speed.

use std::ops::Range;

use crate::request::Input;

/// Where the messages of a prompt lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Turns {
    /// One past each message's end, ascending.
    pub(super) ends: Vec<usize>,
    /// From the end of the first message of the user to the beginning of the newest message: what an earlier turn of
    /// the same conversation had, too, and other conversations had not.
    pub(super) history: Range<usize>,
}

impl Turns {
    /// Reads them off a prompt. `ends_turn`: true for tokens that end a message.
    pub(super) fn of(input: &Input, prompt: &[u32], ends_turn: impl Fn(u32) -> bool) -> Self {
        let Input::Chat(chat) = input else { return Self::default() };
        let ends: Vec<usize> =
            prompt.iter().enumerate().filter(|(_, token)| ends_turn(**token)).map(|(at, _)| at + 1).collect();
        let messages = chat.messages.as_array().map(Vec::as_slice).unwrap_or_default();
        let first_user = messages.iter().position(|message| message["role"] == "user");
        // A template may put a message of its own first.
        let added = ends.len().checked_sub(messages.len());
        let history = match (first_user, added) {
            (Some(first), Some(added)) => ends.get(first + added),
            _ => ends.first(),
        };
        let newest = ends.len().checked_sub(2).and_then(|newest| ends.get(newest));
        let history = match (history, newest) {
            (Some(start), Some(end)) if start < end => *start..*end,
            _ => 0..0,
        };
        Self { ends, history }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Chat;
    use serde_json::json;

    /// Each message is its text, of one token, and an end, 0.
    fn turns(roles: &[&str], prompt: &[u32]) -> Turns {
        let messages: Vec<_> = roles.iter().map(|role| json!({"role": role, "content": "x"})).collect();
        let chat = Chat { messages: messages.into(), ..Chat::default() };
        Turns::of(&Input::Chat(chat), prompt, |token| token == 0)
    }

    #[test]
    fn history_lies_between_the_first_question_and_the_newest_message() {
        let all = turns(&["system", "user", "assistant", "user"], &[1, 0, 2, 0, 3, 0, 4, 0, 9]);
        assert_eq!((all.ends, all.history), (vec![2, 4, 6, 8], 4..6));
        let added = turns(&["user", "assistant", "user"], &[1, 0, 2, 0, 3, 0, 4, 0, 9]);
        assert_eq!(added.history, 4..6);
        assert_eq!(turns(&["system", "user"], &[1, 0, 2, 0, 9]).history, 0..0, "nothing came before");
        assert_eq!(turns(&["user", "assistant", "user"], &[1, 2, 0, 3]).history, 0..0);
        let text = Turns::of(&Input::Text("x".to_owned()), &[1, 0, 2, 0], |token| token == 0);
        assert_eq!(text, Turns::default());
    }
}
