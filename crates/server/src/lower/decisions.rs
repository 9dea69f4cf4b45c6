//! Lowers questions to prompts with replies that are scored.
//!
//! Invariant: a prompt holds the state and one question. It knows nothing of other questions, nor of the question's key.

use omnibus_engine::{Chat, Input, Message, Request, Role, ScoringPrompt, ScoringRequest};

use super::{Caller, thinking};
use crate::error::ApiError;
use crate::wire::decisions::{ChoiceOption, Question, QuestionKind, Readout};

/// Most bytes of the state in all prompts.
const STATE_BYTES_MAX: usize = 64 << 20;

/// Labels of a choice with no more options are letters.
pub const LETTERS: usize = 26;

/// Questions about a state. `pairs`: labels of choices with more options than there are letters.
pub fn request<'a>(
    (model, state): (Option<&str>, &str),
    questions: impl ExactSizeIterator<Item = &'a Question>,
    (readout, pairs): (Readout, &[String]),
    caller: &Caller,
) -> Result<ScoringRequest, ApiError> {
    if state.len().saturating_mul(questions.len()) > STATE_BYTES_MAX {
        let message =
            format!("the state times the number of questions must be at most {STATE_BYTES_MAX} bytes");
        return Err(ApiError::too_large(message));
    }
    let request = Request {
        model: model.map(str::to_owned),
        tenant: caller.tenant.clone(),
        ..Request::new(&caller.response_id, Input::Tokens(Vec::new()))
    };
    let prompts = questions.map(|question| prompt(state, question, (readout, pairs))).collect();
    Ok(ScoringRequest { request, prompts })
}

/// The state comes first, so that the prompts of all questions begin with it.
fn prompt(state: &str, question: &Question, (readout, pairs): (Readout, &[String])) -> ScoringPrompt {
    let (lines, replies, closing) = match (&question.kind, readout) {
        (QuestionKind::Noul { yes, no }, _) => noul(yes.as_deref(), no.as_deref()),
        (QuestionKind::Choice(options), Readout::Labels) => labelled_choice(options, pairs),
        (QuestionKind::Choice(options), Readout::Options) => named_choice(options),
        (QuestionKind::Score(levels), Readout::Labels) => labelled_score(levels),
        (QuestionKind::Score(levels), Readout::Options) => named_score(levels),
    };
    let instructions = question.instructions.as_deref().unwrap_or(match &question.kind {
        QuestionKind::Noul { .. } => "Which of these is the case?",
        QuestionKind::Choice(_) => "Which option fits best?",
        QuestionKind::Score(_) => "Which level fits best?",
    });
    let lines: String = lines.into_iter().map(|line| line + "\n").collect();
    let text = format!("{state}\n\nQuestion: {instructions}\n{lines}{closing}");
    let mut chat = Chat { messages: vec![Message::new(Role::User, text)], ..Chat::default() };
    thinking::switch(Some(false), None, &mut chat.template_kwargs);
    ScoringPrompt { chat, replies, field: question.field.clone() }
}

/// Lines that describe the answers, the replies, and the line that says how to answer.
type Parts = (Vec<String>, Vec<String>, &'static str);

fn noul(yes: Option<&str>, no: Option<&str>) -> Parts {
    let line = |(label, side): (&str, Option<&str>)| side.map(|side| format!("{label}: {side}"));
    let lines = [("yes", yes), ("no", no)].into_iter().filter_map(line).collect();
    (lines, vec!["yes".to_owned(), "no".to_owned()], "Answer with yes or no only.")
}

fn labelled_choice(options: &[ChoiceOption], pairs: &[String]) -> Parts {
    let (labels, closing): (Vec<String>, _) = match options.len() {
        0..=LETTERS => {
            let letters = ('A'..='Z').map(String::from);
            (letters.take(options.len()).collect(), "Answer with the letter of one option only.")
        }
        count => {
            (pairs.iter().take(count).cloned().collect(), "Answer with the two letters of one option only.")
        }
    };
    let line = |(label, option): (&String, &ChoiceOption)| format!("{label}: {}", described(option));
    (labels.iter().zip(options).map(line).collect(), labels, closing)
}

fn named_choice(options: &[ChoiceOption]) -> Parts {
    let lines = options.iter().map(|option| format!("- {}", described(option))).collect();
    let names = options.iter().map(|option| option.name.clone()).collect();
    (lines, names, "Answer with the name of one option only.")
}

fn described(option: &ChoiceOption) -> String {
    match &option.description {
        Some(description) => format!("{} - {description}", option.name),
        None => option.name.clone(),
    }
}

fn labelled_score(levels: &[String]) -> Parts {
    let lines = levels.iter().enumerate().map(|(number, level)| format!("{number}: {level}")).collect();
    let numbers = (0..levels.len()).map(|number| number.to_string()).collect();
    (lines, numbers, "Answer with the number of one level only.")
}

fn named_score(levels: &[String]) -> Parts {
    let lines = levels.iter().map(|level| format!("- {level}")).collect();
    (lines, levels.to_vec(), "Answer with one of these levels only, word for word.")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(kind: QuestionKind, readout: Readout, expected: Expect) {
        let instructions = Some("How so?".to_owned());
        let question = Question { field: "questions.secret".into(), instructions, kind };
        let pairs: Vec<String> = (0..40).map(|number| format!("P{number}")).collect();
        let prompt = prompt("STATE", &question, (readout, &pairs));
        let text = prompt.chat.messages[0].text().unwrap();
        assert!(!text.contains("secret"), "the model does not see the question's key");
        assert_eq!(prompt.chat.template_kwargs["enable_thinking"], false);
        expected.assert_eq(&format!("{text}\n=> {}", prompt.replies.join("|")));
    }

    fn options(names: &[(&str, Option<&str>)]) -> QuestionKind {
        let option = |(name, description): &(&str, Option<&str>)| ChoiceOption {
            name: (*name).to_owned(),
            description: description.map(str::to_owned),
        };
        QuestionKind::Choice(names.iter().map(option).collect())
    }

    #[test]
    fn answers_have_labels() {
        let noul = QuestionKind::Noul { yes: Some("y".into()), no: None };
        check(
            noul,
            Readout::Labels,
            expect![[r#"
                STATE

                Question: How so?
                yes: y
                Answer with yes or no only.
                => yes|no"#]],
        );
        check(
            options(&[("one", Some("first")), ("two", None)]),
            Readout::Labels,
            expect![[r#"
                STATE

                Question: How so?
                A: one - first
                B: two
                Answer with the letter of one option only.
                => A|B"#]],
        );
        check(
            QuestionKind::Score(vec!["low".into(), "high".into()]),
            Readout::Labels,
            expect![[r#"
                STATE

                Question: How so?
                0: low
                1: high
                Answer with the number of one level only.
                => 0|1"#]],
        );
    }

    #[test]
    fn whole_answers_have_none() {
        check(
            options(&[("one", Some("first")), ("two", None)]),
            Readout::Options,
            expect![[r#"
                STATE

                Question: How so?
                - one - first
                - two
                Answer with the name of one option only.
                => one|two"#]],
        );
        check(
            QuestionKind::Score(vec!["low".into(), "high".into()]),
            Readout::Options,
            expect![[r#"
                STATE

                Question: How so?
                - low
                - high
                Answer with one of these levels only, word for word.
                => low|high"#]],
        );
    }

    #[test]
    fn more_options_than_letters_have_pairs() {
        let names: Vec<String> = (0..27).map(|number| format!("o{number}")).collect();
        let names: Vec<(&str, Option<&str>)> = names.iter().map(|name| (name.as_str(), None)).collect();
        let question = Question { field: "q".into(), instructions: None, kind: options(&names) };
        let pairs: Vec<String> = (0..40).map(|number| format!("P{number}")).collect();
        let prompt = prompt("", &question, (Readout::Labels, &pairs));
        assert_eq!((prompt.replies.len(), prompt.replies[26].as_str()), (27, "P26"));
    }

    #[test]
    fn a_state_that_fills_the_memory_with_its_prompts_is_refused() {
        let kind = QuestionKind::Noul { yes: None, no: None };
        let question = Question { field: "q".into(), instructions: None, kind };
        let questions = vec![question; 65];
        let caller = Caller { response_id: "d".into(), tenant: String::new() };
        let state = "x".repeat(1 << 20);
        let lowered = |count: usize| {
            request((None, &state), questions[..count].iter(), (Readout::Labels, &[]), &caller)
        };
        assert_eq!(lowered(2).unwrap().prompts.len(), 2);
        assert_eq!(lowered(65).unwrap_err().kind(), crate::error::ErrorKind::TooLarge);
    }
}
