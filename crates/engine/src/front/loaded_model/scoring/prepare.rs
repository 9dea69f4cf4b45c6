//! From conversations and replies to tokens.

use std::collections::BTreeSet;

use crate::error::Failure;
use crate::front::model_text::ModelText;
use crate::front::scoring::ScoringPrompt;
use crate::request::Input;

/// Most tokens of all prompts of a call.
const TOKENS_MAX: usize = 1 << 24;

/// Bytes of a prompt's end that decide how a reply behind it is tokenized: more than a word has.
const ENDING_BYTES: usize = 128;

/// A prompt in tokens.
pub(super) struct PreparedPrompt {
    pub(super) tokens: Vec<u32>,
    pub(super) replies: PreparedReplies,
}

/// Replies in tokens.
pub(super) enum PreparedReplies {
    /// Each is one token: the logits behind the prompt have them all.
    Tokens(Vec<u32>),
    /// Some have more.
    Texts(Vec<Vec<u32>>),
}

/// What a model takes.
pub(super) struct ScoringModel<'a> {
    pub(super) text: &'a ModelText,
    /// Tokens of a prompt with a reply, at most.
    pub(super) limit: usize,
}

impl ScoringModel<'_> {
    /// Tokenizes prompts. Fails with the first that cannot be scored.
    pub(super) fn prepare(&self, prompts: Vec<ScoringPrompt>) -> Result<Vec<PreparedPrompt>, Failure> {
        let (mut prepared, mut total) = (Vec::with_capacity(prompts.len()), 0);
        for prompt in prompts {
            let field = prompt.field.clone();
            let one = self.prompt(prompt).map_err(|failure| of_field(failure, &field))?;
            total += one.tokens.len();
            if total > TOKENS_MAX {
                let message = format!("all prompts together have more than {TOKENS_MAX} tokens");
                return Err(Failure::bad_request(&field, message));
            }
            prepared.push(one);
        }
        Ok(prepared)
    }

    fn prompt(&self, prompt: ScoringPrompt) -> Result<PreparedPrompt, Failure> {
        let ScoringPrompt { chat, replies, field } = prompt;
        let Input::Chat(chat) = self.text.adapt(Input::Chat(chat))? else {
            return Err(Failure::bad_request(&field, "is no conversation"));
        };
        let text = self.text.answer_prompt(&chat)?;
        let tokens = self.text.encode_prompt(&text, self.limit)?;
        let replies = self.replies(&text, &replies)?;
        let longest = replies.iter().map(Vec::len).max().unwrap_or(0);
        let (prompt_tokens, limit) = (self.text.prefix_tokens() + tokens.len(), self.limit);
        if prompt_tokens + longest > limit {
            return Err(Failure::TooLong { prompt_tokens, completion_tokens: longest, limit });
        }
        let single: Option<Vec<u32>> = replies.iter().map(|reply| single(reply)).collect();
        let replies = single.map_or(PreparedReplies::Texts(replies), PreparedReplies::Tokens);
        Ok(PreparedPrompt { tokens, replies })
    }

    /// The tokens that each reply adds to a prompt. Fails where the prompt's end would have other tokens with a reply.
    fn replies(&self, prompt: &str, replies: &[String]) -> Result<Vec<Vec<u32>>, Failure> {
        let ending = ending(prompt);
        let alone = self.text.tokens_of(ending, "")?;
        let (mut tokens, mut seen) = (Vec::with_capacity(replies.len()), BTreeSet::new());
        for reply in replies {
            let with = self.text.tokens_of(&format!("{ending}{reply}"), "")?;
            let Some(added) = with.strip_prefix(alone.as_slice()).filter(|added| !added.is_empty()) else {
                let message = format!(
                    "the answer `{reply}` has no tokens of its own at the start of this model's reply"
                );
                return Err(Failure::bad_request("", message));
            };
            if !seen.insert(added.to_vec()) {
                let message = format!("the answer `{reply}` has the tokens of another answer");
                return Err(Failure::bad_request("", message));
            }
            tokens.push(added.to_vec());
        }
        Ok(tokens)
    }
}

fn single(tokens: &[u32]) -> Option<u32> {
    match tokens {
        [token] => Some(*token),
        _ => None,
    }
}

/// The end of a prompt.
fn ending(prompt: &str) -> &str {
    let from = prompt.len().saturating_sub(ENDING_BYTES);
    let from = (from..prompt.len()).find(|at| prompt.is_char_boundary(*at)).unwrap_or(prompt.len());
    prompt.get(from..).unwrap_or_default()
}

/// A failure of the prompt that comes from a field.
fn of_field(failure: Failure, field: &str) -> Failure {
    match failure {
        Failure::BadRequest { message, .. } => Failure::bad_request(field, format!("`{field}`: {message}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_begins_with_a_character() {
        assert_eq!(ending(""), "");
        assert_eq!(ending("abc"), "abc");
        let long = "é".repeat(100);
        assert_eq!(ending(&long).len(), 128);
        assert_eq!(ending(&format!("{long}a")).len(), 127);
    }
}
