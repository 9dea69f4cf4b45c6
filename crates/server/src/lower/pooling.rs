//! Lowers texts that are pooled.

use omnibus_engine::{
    AddSpecial, CutSide, Input, PoolingInput, PoolingOutput, PoolingPrompt, PoolingRequest, Request, TooLong,
    VectorLength,
};

use super::{Caller, chat};
use crate::wire::pooling::embeddings::{EmbeddingInputs, EmbeddingsRequest};
use crate::wire::pooling::{PooledInput, PoolingOptions, Side, Truncation};

/// Texts of a request to pool. `field`: where they are in it.
pub fn request(
    options: &PoolingOptions,
    inputs: Vec<PoolingInput>,
    field: &'static str,
    caller: &Caller,
) -> PoolingRequest {
    let request = Request {
        model: options.model.clone(),
        priority: options.priority,
        tenant: caller.tenant.clone(),
        ..Request::new(&caller.response_id, Input::Tokens(Vec::new()))
    };
    let too_long = too_long(options.truncation);
    PoolingRequest {
        request,
        field,
        inputs,
        prompt: PoolingPrompt::Default,
        instruction: None,
        too_long,
        special: AddSpecial::Yes,
        output: PoolingOutput::Task,
        length: VectorLength::AsTheModel,
    }
}

/// What `/v1/embeddings` pools.
pub fn embeddings(wire: EmbeddingsRequest, caller: &Caller) -> PoolingRequest {
    let (inputs, field) = match wire.inputs {
        EmbeddingInputs::Texts(texts) => (self::inputs(texts), "input"),
        EmbeddingInputs::Conversation(conversation) => {
            (vec![PoolingInput::Chat(Box::new(chat::chat(*conversation)))], "messages")
        }
    };
    let prompt = wire.prompt.map_or(PoolingPrompt::Default, PoolingPrompt::Named);
    let special = if wire.add_special { AddSpecial::Yes } else { AddSpecial::No };
    PoolingRequest { prompt, special, ..request(&wire.options, inputs, field, caller) }
}

/// Texts and lists of tokens.
pub fn inputs(texts: Vec<PooledInput>) -> Vec<PoolingInput> {
    let input = |text| match text {
        PooledInput::Text(text) => PoolingInput::Text(text),
        PooledInput::Tokens(tokens) => PoolingInput::Tokens(tokens),
    };
    texts.into_iter().map(input).collect()
}

/// What becomes of texts that are too long.
fn too_long(truncation: Truncation) -> TooLong {
    match truncation {
        Truncation::Default => TooLong::AsTheModel,
        Truncation::Never => TooLong::Refuse,
        Truncation::To { tokens, side } => {
            let side = match side {
                Side::Left => CutSide::Start,
                Side::Right => CutSide::End,
            };
            TooLong::Cut { tokens, side }
        }
    }
}
