//! `POST /v1/chat/completions`.

use omnibus_engine::Input;
use serde_json::Value;

use crate::api::{Api, Prepared, RequestContext};
use crate::error::ApiError;
use crate::lower::{self, GenerationBatch};
use crate::mcp::{Approvals, ApprovedCall, Asked, Loop, PendingCall};
use crate::response::openai::Include;
use crate::response::openai::chat::ChatFramer;
use crate::wire::chat::ChatRequest;

/// The engine's requests of a chat, and the loop of its tools that this server runs. `approved`: calls that its client has
/// approved; `None` where it can approve none.
pub fn lowered(
    request: ChatRequest,
    approved: Option<Vec<(ApprovedCall, PendingCall)>>,
    context: &RequestContext<'_>,
) -> Result<(GenerationBatch, Option<Loop>), ApiError> {
    let mcp = request.conversation.tools.mcp.clone();
    let limit = lower::chat::call_limit(request.conversation.tools.parallel);
    let max_calls = request.max_tool_calls;
    let mut batch = lower::chat::lower(request, &context.caller);
    let approvals = if approved.is_some() { Approvals::Possible } else { Approvals::Impossible };
    let asked = Asked { servers: &mcp.servers, auto: mcp.auto, approvals, search: None };
    let mut tools = context.server_tools(asked)?;
    tools.retain(|name| mcp.allows(name));
    let approved = tools.check_approved(approved.unwrap_or_default())?;
    let server_loop = context.server_loop(tools, &mut batch, limit)?;
    Ok((batch, server_loop.map(|parts| Loop { max_calls, approved, ..parts })))
}

/// OpenAI's chat completions.
pub struct ChatApi;

impl Api for ChatApi {
    const NAME: &'static str = "chat";
    const ID_PREFIX: &'static str = "chatcmpl-";
    const INPUT_FIELD: &'static str = "messages";
    type Framer = ChatFramer;

    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<ChatFramer>, ApiError> {
        let request = ChatRequest::read(body)?;
        let streaming = request.generation.streaming;
        let include = Include::new(&request.generation, request.logprobs);
        let forms = request.conversation.tools.forms();
        let (shown, ids) = (request.shown_reasoning, request.generation.tokens.ids);
        let last = request.generation.truncate_prompt;
        let (mut batch, server_loop) = lowered(request, None, context)?;
        for prompt in &batch.prompts {
            if let Input::Chat(chat) = &prompt.input {
                context.templates.check(chat)?;
            }
        }
        context.truncate_prompts(&mut batch, last)?;
        let prompts = context.prompt_token_ids(&batch, ids)?;
        let framer = ChatFramer::new(context.header(&batch), batch.choices(), include)
            .with_reasoning(shown)
            .with_forms(forms)
            .with_prompt(prompts.and_then(|prompts| prompts.into_iter().next()));
        Ok(Prepared { batch, framer, delivery: streaming.into(), server_loop })
    }
}
