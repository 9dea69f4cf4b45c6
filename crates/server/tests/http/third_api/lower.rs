//! Lowers the third API's requests.

use omnibus_engine::{Input, Request};
use omnibus_server::lower::GenerationBatch;
use omnibus_server::response::Delivery;
use omnibus_server::{Api, ApiError, Prepared, RequestContext};
use serde_json::Value;

use super::framer::MessagesFramer;
use super::wire::MessagesRequest;

pub struct MessagesApi;

impl Api for MessagesApi {
    const NAME: &'static str = "messages";
    const ID_PREFIX: &'static str = "msg-";
    const INPUT_FIELD: &'static str = "messages";
    type Framer = MessagesFramer;

    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<MessagesFramer>, ApiError> {
        let wire = MessagesRequest::read(body)?;
        let delivery = if wire.stream == Some(true) { Delivery::Stream } else { Delivery::Full };
        let input = Input::Text(wire.contents.join("\n"));
        let request = Request {
            model: wire.model,
            max_new_tokens: Some(wire.max_tokens),
            tenant: context.caller.tenant.clone(),
            ..Request::new(context.caller.response_id.clone(), input)
        };
        let batch = GenerationBatch { prompts: vec![request], n: 1 };
        let framer = MessagesFramer::new(context.header(&batch));
        Ok(Prepared { batch, framer, delivery, server_loop: None })
    }
}
