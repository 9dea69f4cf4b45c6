//! Lowers `POST /api/chat` and `POST /api/generate`.

use omnibus_engine::{Input, Request};

use super::{Caller, GenerationBatch, chat, generation};
use crate::wire::chat::{ChatRequest, Conversation};
use crate::wire::generation::Generation;
use crate::wire::ollama::Shared;
use crate::wire::ollama::generate::Prompt;
use crate::wire::ollama::think::ThinkingSupport;

/// What is known of the model of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The name it is served under.
    pub name: String,
    /// Whether it reasons.
    pub thinking: ThinkingSupport,
}

/// The engine requests of a conversation.
pub fn chat(shared: Shared, conversation: Conversation, served: Served, caller: &Caller) -> GenerationBatch {
    let reasoning = shared.think.reasoning(served.thinking);
    let request = ChatRequest {
        generation: Generation { model: Some(served.name), ..shared.generation },
        conversation: Conversation { reasoning, ..conversation },
        logprobs: shared.logprobs,
        reasoning_budget: None,
        prediction: None,
        shown_reasoning: shared.think.shown(),
        max_tool_calls: None,
    };
    chat::lower(request, caller)
}

/// The engine requests of a completion. The tokens of an earlier answer are no part of them.
pub fn generate(shared: Shared, prompt: Prompt, served: Served, caller: &Caller) -> GenerationBatch {
    let input = match prompt {
        Prompt::Chat { conversation, .. } => return chat(shared, *conversation, served, caller),
        Prompt::Raw(text) => Input::Text(text),
        Prompt::Infill { prefix, suffix } => Input::Infill { prefix, suffix, files: Vec::new() },
    };
    let shared =
        Shared { generation: Generation { model: Some(served.name), ..shared.generation }, ..shared };
    let request =
        Request { logprobs: shared.logprobs, ..generation::lower(&shared.generation, input, caller) };
    GenerationBatch { prompts: vec![request], n: 1 }
}

#[cfg(test)]
mod tests {
    use omnibus_engine::{OutputMode, PromptEnd, ToolChoice};
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::ollama;

    fn lowered(fields: Value, thinking: ThinkingSupport) -> Request {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let ollama::chat::ChatRequest { shared, conversation } =
            ollama::chat::ChatRequest::read(body).unwrap();
        let caller = Caller { response_id: "id".into(), tenant: "key-1".into() };
        let batch = chat(shared, conversation, Served { name: "served".into(), thinking }, &caller);
        assert_eq!((batch.n, batch.prompts.len()), (1, 1));
        batch.prompts.into_iter().next().unwrap()
    }

    fn of_chat(request: &Request) -> &omnibus_engine::Chat {
        let Input::Chat(chat) = &request.input else { panic!("{:?}", request.input) };
        chat
    }

    #[test]
    fn options_reach_the_engine() {
        let options = json!({"num_predict": 7, "temperature": 0.5, "top_k": 3, "repeat_penalty": 1.25, "repeat_last_n": 9,
            "presence_penalty": 0.5, "frequency_penalty": 0.25, "seed": 4, "stop": ["END"]});
        let request =
            lowered(json!({"options": options, "format": "json", "logprobs": true}), ThinkingSupport::No);
        assert_eq!((request.model.as_deref(), request.tenant.as_str()), (Some("served"), "key-1"));
        assert_eq!((request.max_new_tokens, request.logprobs), (Some(7), Some(0)));
        let sampling = &request.sampling;
        assert_eq!((sampling.temperature, sampling.top_k, sampling.top_p), (0.5, 3, 0.9));
        assert_eq!((sampling.repetition_penalty, sampling.repetition_context), (1.25, 9));
        assert_eq!((sampling.presence_penalty, sampling.frequency_penalty), (0.5, 0.25));
        assert_eq!((sampling.seed, request.stop.strings.as_slice()), (Some(4), &["END".to_owned()][..]));
        assert_eq!(request.structured.unwrap().field, "format");
        assert_eq!(lowered(json!({}), ThinkingSupport::No).max_new_tokens, None, "until the context ends");
    }

    #[test]
    fn thinking_is_on_where_the_model_can_unless_it_is_switched_off() {
        let switch = |think: Value, able| {
            let request = lowered(json!({"think": think}), able);
            let kwargs = &of_chat(&request).template_kwargs;
            (kwargs.get("enable_thinking").cloned(), kwargs.get("reasoning_effort").cloned())
        };
        let (on, off) = (Some(json!(true)), Some(json!(false)));
        assert_eq!(switch(json!(null), ThinkingSupport::Yes), (on.clone(), None));
        assert_eq!(switch(json!(null), ThinkingSupport::No), (None, None));
        assert_eq!(switch(json!(false), ThinkingSupport::Yes), (off, None));
        assert_eq!(switch(json!("max"), ThinkingSupport::Yes), (on, Some(json!("high"))));
    }

    #[test]
    fn tools_images_and_an_open_message_are_part_of_the_conversation() {
        let tools = json!([{"function": {"name": "f", "parameters": {"type": "object"}, "strict": true}}]);
        let messages = json!([{"role": "user", "content": "look", "images": ["QUJD"]}, {"role": "assistant", "content": "I"}]);
        let request = lowered(json!({"tools": tools, "messages": messages}), ThinkingSupport::No);
        let chat = of_chat(&request);
        assert_eq!((chat.tools.len(), chat.media.len(), chat.end), (1, 1, PromptEnd::OpenMessage));
        assert_eq!(chat.media[0].field, "messages[0].images[0]");
        assert!(matches!(request.output, OutputMode::Message { calls: Some(_) }));
        assert_eq!(request.tool_choice, ToolChoice::Auto);
    }

    #[test]
    fn a_raw_prompt_and_a_gap_are_no_conversations() {
        let input = |fields: Value| {
            let mut body = json!({"model": "m", "prompt": "p"});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let ollama::generate::GenerateRequest { shared, prompt } =
                ollama::generate::GenerateRequest::read(body).unwrap();
            let caller = Caller { response_id: "id".into(), tenant: String::new() };
            let served = Served { name: "served".into(), thinking: ThinkingSupport::No };
            let request = generate(shared, prompt, served, &caller).prompts.into_iter().next().unwrap();
            assert_eq!(request.model.as_deref(), Some("served"));
            request.input
        };
        assert_eq!(input(json!({"raw": true})), Input::Text("p".into()));
        let gap = Input::Infill { prefix: "p".into(), suffix: "s".into(), files: Vec::new() };
        assert_eq!(input(json!({"suffix": "s"})), gap);
        assert!(matches!(input(json!({"system": "s"})), Input::Chat(chat) if chat.messages.len() == 2));
    }
}
