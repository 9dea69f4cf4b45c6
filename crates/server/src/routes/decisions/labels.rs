//! Labels of choices with more options than there are letters.

use omnibus_engine::{AddSpecial, Input};

use crate::engine::Engine;
use crate::lower::decisions::LETTERS;
use crate::wire::decisions::{OPTIONS_MAX, Question, QuestionKind, Readout};

/// Pairs of letters for the largest choice: those that are one token of the model, or the first ones where too few are.
pub(super) fn pairs<'a>(
    engine: &dyn Engine,
    model: Option<&str>,
    questions: impl Iterator<Item = &'a Question>,
    readout: Readout,
) -> Vec<String> {
    let options = |question: &Question| match &question.kind {
        QuestionKind::Choice(options) => options.len(),
        QuestionKind::Noul { .. } | QuestionKind::Score(_) => 0,
    };
    if readout == Readout::Options || questions.map(options).max().unwrap_or(0) <= LETTERS {
        return Vec::new();
    }
    let all: Vec<String> =
        ('A'..='Z').flat_map(|first| ('A'..='Z').map(move |second| format!("{first}{second}"))).collect();
    let is_token = |pair: &&String| {
        let input = Input::Text((*pair).clone());
        engine.tokenize(model, &input, AddSpecial::No).is_ok_and(|tokens| tokens.len() == 1)
    };
    let tokens: Vec<String> = all.iter().filter(is_token).take(OPTIONS_MAX).cloned().collect();
    if tokens.len() == OPTIONS_MAX { tokens } else { all }
}
