//! `POST /v1/completions`.

use serde_json::Value;

use crate::api::{Api, Prepared, RequestContext};
use crate::engine::Engine;
use crate::error::ApiError;
use crate::lower;
use crate::response::openai::Include;
use crate::response::openai::completions::CompletionsFramer;
use crate::wire::completions::{CompletionRequest, Echo, Prompt};

/// OpenAI's text completions.
pub struct CompletionsApi;

impl Api for CompletionsApi {
    const NAME: &'static str = "completions";
    const ID_PREFIX: &'static str = "cmpl-";
    const INPUT_FIELD: &'static str = "prompt";
    type Framer = CompletionsFramer;

    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<CompletionsFramer>, ApiError> {
        let request = CompletionRequest::read(body)?;
        let streaming = request.generation.streaming;
        let include = Include::new(&request.generation, request.logprobs);
        let ids = request.generation.tokens.ids;
        let echoes = echoes(context.engine, &request)?;
        let returned = request.generation.n;
        let last = request.generation.truncate_prompt;
        let mut batch = lower::completions::lower(request, &context.caller);
        context.truncate_prompts(&mut batch, last)?;
        let framer = CompletionsFramer::new(context.header(&batch), batch.choices(), include, echoes);
        let prompts = context.prompt_token_ids(&batch, ids)?;
        let framer = framer.returning(returned).with_prompts(prompts);
        Ok(Prepared { batch, framer, delivery: streaming.into(), server_loop: None })
    }
}

/// The text of each prompt, when `echo` is set.
fn echoes(engine: &dyn Engine, request: &CompletionRequest) -> Result<Option<Vec<String>>, ApiError> {
    let echo = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => Ok(text.clone()),
        Prompt::Tokens(tokens) => {
            engine.detokenize(request.generation.model.as_deref(), tokens).map_err(ApiError::from)
        }
    };
    match request.echo {
        Echo::Omit => Ok(None),
        Echo::Include => request.prompts.iter().map(echo).collect::<Result<_, _>>().map(Some),
    }
}
