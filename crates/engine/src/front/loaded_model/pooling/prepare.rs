//! From texts to requests that generate nothing.

use omnibus_pooler::{Pooler, PoolingOutput, Rows, Task, TextForm};
use omnibus_text::{AddSpecial, Cut, CutSide, Message, Role, TextTokens};

use super::NUMBERS_MAX;
use super::run::{Made, PoolingRun, PreparedText};
use super::token_form::{FormedTokens, Role as TextRole};
use crate::error::Failure;
use crate::front::loaded_model::LoadedModel;
use crate::front::model_text::ModelText;
use crate::front::pooling::{PoolingInput, PoolingPrompt, PoolingRequest, TooLong};
use crate::hidden::HiddenPositions;
use crate::request::{Chat, Input, Request};

/// What a model takes.
pub(super) struct PoolingModel<'a> {
    pub(super) text: &'a ModelText,
    pub(super) pooler: &'a Pooler,
    /// Tokens of a text, at most.
    pub(super) limit: usize,
    /// Of the vocabulary.
    pub(super) vocab: usize,
}

impl PoolingModel<'_> {
    /// Tokenizes the texts. Takes up to seconds of CPU for many.
    pub(super) fn prepare(
        &self,
        pooling: PoolingRequest,
        model: std::sync::Arc<LoadedModel>,
        width: usize,
    ) -> Result<PoolingRun, Failure> {
        let PoolingRequest { request, field, inputs, prompt, instruction, too_long, special, output, length } =
            pooling;
        let instruction = instruction.as_deref();
        let role = self.role(&prompt);
        let prompt = self.prompt(&prompt)?;
        let prompt_tokens = match prompt {
            "" => 0,
            text => self.leading_tokens(text, field)?,
        };
        let mut texts = Vec::with_capacity(inputs.len());
        for (number, input) in inputs.into_iter().enumerate() {
            let fail = |failure| of_input(failure, (field, number));
            let input = self.judged(input, instruction);
            let FormedTokens { tokens, unattended } =
                self.formed(input, (prompt, special, &role), too_long).map_err(fail)?;
            let cut_from = (tokens.whole > tokens.ids.len()).then_some(tokens.whole);
            let request = Request {
                id: format!("{}-{number}", request.id),
                input: Input::Tokens(self.with_types(&tokens)),
                max_new_tokens: Some(0),
                hidden: self.hidden(output),
                token_logits: self.pooler.scored_tokens(),
                unattended,
                ..request.clone()
            };
            let kept = self.kept(&tokens.ids, output, role.as_ref());
            texts.push(PreparedText { request, tokens: tokens.ids.len(), kept, cut_from });
        }
        self.check_numbers(texts.iter().map(|text| text.kept.len()).sum(), (output, width), field)?;
        let made = Made { output, length, width, vocab: self.vocab, prompt: prompt_tokens };
        Ok(PoolingRun::new(model, texts, made))
    }

    /// The tokens of an input. A text of late interaction has the form of its role.
    fn formed(
        &self,
        input: PoolingInput,
        (prompt, special, role): (&str, AddSpecial, &Option<TextRole<'_>>),
        too_long: TooLong,
    ) -> Result<FormedTokens, Failure> {
        if special == AddSpecial::No && role.is_some() {
            let message = "must be true: this model reads texts with special tokens alone";
            return Err(Failure::bad_request("add_special_tokens", message));
        }
        let formed = match (input, role) {
            (PoolingInput::Text(text), Some(role)) => {
                let cut = match too_long {
                    // Its own limit is there in any case.
                    TooLong::AsTheModel => {
                        let whole = Cut { tokens: self.limit, side: CutSide::End };
                        Some(self.cut(too_long).unwrap_or(whole))
                    }
                    TooLong::Refuse | TooLong::Cut { .. } => self.cut(too_long),
                };
                role.tokens(&self.text.tokenizer, &text, cut)
                    .map_err(|error| Failure::bad_request("input", error.to_string()))?
            }
            (input, _) => {
                FormedTokens { tokens: self.tokens(input, (prompt, special), too_long)?, unattended: 0 }
            }
        };
        self.check_length(&formed.tokens)?;
        Ok(formed)
    }

    /// Fails for more vectors of tokens than one request may have.
    fn check_numbers(
        &self,
        rows: usize,
        (output, hidden): (PoolingOutput, usize),
        field: &str,
    ) -> Result<(), Failure> {
        let width = match output {
            PoolingOutput::TokenWeights => 1,
            PoolingOutput::Task | PoolingOutput::TokenVectors => self.pooler.token_width(hidden),
        };
        match rows.saturating_mul(width) > NUMBERS_MAX {
            true => {
                let message = format!(
                    "{rows} vectors of tokens are too many for one request: send fewer or shorter texts"
                );
                Err(Failure::bad_request(field, message))
            }
            false => Ok(()),
        }
    }

    /// How texts are written that are compared token by token.
    fn role(&self, prompt: &PoolingPrompt) -> Option<TextRole<'_>> {
        let late = self.pooler.late_interaction()?;
        let is_query = matches!(prompt, PoolingPrompt::Named(name) if name == "query");
        Some(match is_query {
            true => TextRole { form: &late.query, skipped: &[] },
            false => TextRole { form: &late.document, skipped: &late.skipped },
        })
    }

    /// The positions of tokens that have vectors or weights, of a text that has them for each token.
    fn kept(&self, ids: &[u32], output: PoolingOutput, role: Option<&TextRole<'_>>) -> Vec<usize> {
        let special =
            |at: usize| ids.get(at).is_some_and(|id| self.text.tokenizer.special_ids().contains(id));
        let last = ids.len().saturating_sub(1);
        let positions = 0..ids.len();
        match (output, role) {
            (PoolingOutput::Task, None) => Vec::new(),
            (PoolingOutput::Task | PoolingOutput::TokenVectors, Some(role)) => {
                let skipped = role.skipped_ids(&self.text.tokenizer);
                positions.filter(|at| ids.get(*at).is_none_or(|id| !skipped.contains(id))).collect()
            }
            // As BGE-M3 has it: without the first token, and of weights without the last.
            (PoolingOutput::TokenVectors, None) if self.pooler.gives(PoolingOutput::TokenWeights) => {
                positions.filter(|at| *at > 0 || !special(0)).collect()
            }
            (PoolingOutput::TokenVectors, None) => positions.collect(),
            (PoolingOutput::TokenWeights, _) => {
                positions.filter(|at| !((*at == 0 || *at == last) && special(*at))).collect()
            }
        }
    }

    /// What the network reports of each text.
    fn hidden(&self, output: PoolingOutput) -> Option<HiddenPositions> {
        match (self.pooler.task(), self.pooler.rows(output)) {
            (Task::ScoreTokens { .. }, _) => None,
            (_, Rows::Last) => Some(HiddenPositions::Last),
            (_, Rows::All) => Some(HiddenPositions::All),
            (_, Rows::Vocabulary) => Some(HiddenPositions::Vocabulary),
        }
    }

    /// A pair as the conversation that a model judges by a token behind it.
    fn judged(&self, input: PoolingInput, instruction: Option<&str>) -> PoolingInput {
        let (PoolingInput::Pair(query, document), Task::ScoreTokens { .. }) = (&input, self.pooler.task())
        else {
            return input;
        };
        let role = |name: &str| Role::Other(name.to_owned());
        let instruction = instruction.map(|text| Message::new(Role::System, text));
        let pair = [Message::new(role("query"), query), Message::new(role("document"), document)];
        let messages = instruction.into_iter().chain(pair).collect();
        PoolingInput::Chat(Box::new(Chat { messages, ..Chat::default() }))
    }

    fn prompt(&self, prompt: &PoolingPrompt) -> Result<&str, Failure> {
        let prompts = self.pooler.prompts();
        match prompt {
            PoolingPrompt::Default => Ok(prompts.default_text()),
            PoolingPrompt::Named(name) => prompts.named(name).ok_or_else(|| {
                let names: Vec<&str> = prompts.names().collect();
                let known = match names.as_slice() {
                    [] => "this model has no prompts".to_owned(),
                    names => format!("this model has the prompts {}", names.join(", ")),
                };
                Failure::bad_request("input_type", format!("`{name}`: {known}"))
            }),
        }
    }

    /// How many tokens a prompt has in front of a text, special ones included.
    fn leading_tokens(&self, prompt: &str, field: &str) -> Result<usize, Failure> {
        let tokens = self.encode((prompt, None), None, field)?;
        let ends = tokens.ids.last().is_some_and(|last| self.text.tokenizer.special_ids().contains(last));
        Ok(tokens.ids.len() - usize::from(ends))
    }

    fn encode(
        &self,
        (text, second): (&str, Option<&str>),
        cut: Option<Cut>,
        field: &str,
    ) -> Result<TextTokens, Failure> {
        let tokens = self.text.tokenizer.encode_texts(text, second, cut);
        tokens.map_err(|error| Failure::bad_request(field, error.to_string()))
    }

    fn tokens(
        &self,
        input: PoolingInput,
        (prompt, special): (&str, AddSpecial),
        too_long: TooLong,
    ) -> Result<TextTokens, Failure> {
        let cut = self.cut(too_long);
        let tokens = match input {
            PoolingInput::Text(text) => {
                let text = format!("{prompt}{text}");
                match (special, self.pooler.text_form()) {
                    (AddSpecial::Yes, TextForm::Special) => self.encode((&text, None), cut, "input")?,
                    (AddSpecial::No, _) | (_, TextForm::Plain | TextForm::Known) => {
                        self.cut_tokens(self.own_tokens(&text)?, cut)
                    }
                }
            }
            PoolingInput::Pair(text, second) => self.encode((&text, Some(&second)), cut, "input")?,
            PoolingInput::Tokens(ids) => {
                if let Some(id) = ids.iter().find(|id| **id as usize >= self.vocab) {
                    let message = format!(
                        "{id} is not a token of this model, which has {}; send texts (LangChain: \
                         check_embedding_ctx_length=False)",
                        self.vocab
                    );
                    return Err(Failure::bad_request("input", message));
                }
                self.cut_tokens(ids, cut)
            }
            PoolingInput::Chat(chat) => {
                let rendered = self.text.render(&chat)?;
                self.cut_tokens(self.text.tokens_of(&rendered, "messages")?, cut)
            }
        };
        Ok(tokens)
    }

    /// A text's tokens without special ones; of Model2Vec those that the vocabulary has.
    fn own_tokens(&self, text: &str) -> Result<Vec<u32>, Failure> {
        let mut ids = self.text.tokens_of(text, "input")?;
        if self.pooler.text_form() == TextForm::Known
            && let Some(unknown) = self.text.tokenizer.special_token_id("unk_token")
        {
            ids.retain(|id| *id != unknown);
        }
        Ok(ids)
    }

    /// Fails for a text that the model does not read.
    fn check_length(&self, tokens: &TextTokens) -> Result<(), Failure> {
        if tokens.ids.len() > self.limit {
            let message = format!(
                "has {} tokens, and this model reads {} at most; shorten it, or send truncate_prompt_tokens: -1",
                tokens.whole, self.limit
            );
            return Err(Failure::bad_request("input", message));
        }
        // Static embeddings have a vector of it.
        if tokens.ids.is_empty() && self.pooler.text_form() == TextForm::Special {
            return Err(Failure::bad_request("input", "has no tokens"));
        }
        Ok(())
    }

    fn cut(&self, too_long: TooLong) -> Option<Cut> {
        let named = self.pooler.max_tokens().map(|tokens| tokens.min(self.limit));
        match too_long {
            TooLong::Refuse => None,
            TooLong::AsTheModel => named.map(|tokens| Cut { tokens, side: CutSide::End }),
            TooLong::Cut { tokens, side } => {
                let limit = named.unwrap_or(self.limit);
                Some(Cut { tokens: tokens.map_or(limit, |tokens| tokens.min(limit)), side })
            }
        }
    }

    /// Tokens that a client has made, or a template.
    fn cut_tokens(&self, mut ids: Vec<u32>, cut: Option<Cut>) -> TextTokens {
        let whole = ids.len();
        match cut {
            Some(Cut { tokens, side: CutSide::End }) => ids.truncate(tokens),
            Some(Cut { tokens, side: CutSide::Start }) => drop(ids.drain(..whole.saturating_sub(tokens))),
            None => {}
        }
        TextTokens { types: vec![0; ids.len()], ids, whole }
    }

    /// Token `type · vocab + id` is token `id` of that type.
    fn with_types(&self, tokens: &TextTokens) -> Vec<u32> {
        let types = if self.text.token_types > 1 { tokens.types.as_slice() } else { &[] };
        let types = types.iter().copied().chain(std::iter::repeat(0));
        let last = self.text.token_types.saturating_sub(1) as u32;
        tokens.ids.iter().zip(types).map(|(id, kind)| id + kind.min(last) * self.vocab as u32).collect()
    }
}

/// A failure of one of several inputs.
fn of_input(failure: Failure, (field, number): (&str, usize)) -> Failure {
    match failure {
        Failure::BadRequest { field: of, message } if of == "input" => {
            Failure::bad_request(field, format!("`{field}[{number}]` {message}"))
        }
        other => other,
    }
}
