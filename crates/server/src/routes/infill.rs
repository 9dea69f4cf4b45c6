//! `POST /infill`.

use serde_json::Value;

use crate::api::{Api, Prepared, RequestContext};
use crate::error::ApiError;
use crate::lower;
use crate::response::openai::infill::InfillFramer;
use crate::wire::infill::InfillRequest;

/// llama.cpp's completion of the text between two others.
pub struct InfillApi;

impl Api for InfillApi {
    const NAME: &'static str = "infill";
    const ID_PREFIX: &'static str = "infill-";
    const INPUT_FIELD: &'static str = "input_prefix";
    type Framer = InfillFramer;

    fn prepare(body: Value, context: &RequestContext<'_>) -> Result<Prepared<InfillFramer>, ApiError> {
        let request = InfillRequest::read(body)?;
        let (streaming, last) = (request.generation.streaming, request.generation.truncate_prompt);
        let mut batch = lower::infill::lower(request, &context.caller);
        context.truncate_prompts(&mut batch, last)?;
        let framer = InfillFramer::new(context.header(&batch));
        Ok(Prepared { batch, framer, delivery: streaming.into(), server_loop: None })
    }
}
