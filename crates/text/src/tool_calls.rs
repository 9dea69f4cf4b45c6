//! Formats of tool calls in generated text.
//!
//! Start at [`TOOL_CALL_FORMATS`] and [`ToolCallFormat::of_template`]. Most formats share one of a few layouts: JSON
//! objects (`json_calls`), a name before a JSON object (`named_json`), tagged parameters (`parameters`) and calls
//! in Python's notation (`python_calls`). A file of `formats` says what its format adds.

mod call;
mod format;
mod formats;
mod harmony;
mod json_calls;
mod muse;
mod named_json;
mod parameters;
mod python_calls;
mod schemas;
mod typed_value;
mod written;

pub use format::ToolCallFormat;
pub(crate) use format::has_sign;
pub use formats::TOOL_CALL_FORMATS;
pub(crate) use harmony::{Recipients, harmony};
pub(crate) use muse::{ENDS as MUSE_ENDS, Header as MuseHeader};
pub use schemas::ToolSchemas;
pub use written::{
    ArgumentStyle, IDENTIFIER, JSON_TYPE, NAME, Notation, WrittenAnswer, WrittenCalls, WrittenReasoning,
};
