//! Text in and out of a model: tokenizers, chat templates, incremental detokenizing, stop strings, and the tool calls
//! and reasoning in generated text.
//!
//! Start at [`Tokenizer::from_dir`] and [`ChatTemplate::from_dir`]; a running sequence owns a [`Detokenizer`], a
//! [`StopMatcher`] and an [`OutputParser`].
//!
//! Invariants: nothing here knows arrays, HTTP or async. What a model directory holds is hostile: broken files and
//! templates are one-line errors, never a panic, a hang or a full memory. What never changes is [`Send`] and
//! [`Sync`] and meant to be shared behind an `Arc`; what a sequence owns depends only on that sequence's tokens.

pub mod catch_panic;
mod decoder;
pub mod detokenize;
mod error;
mod files;
mod infill;
pub mod message;
mod output_parser;
pub mod reasoning;
pub mod stop;
mod syntax;
pub mod template;
pub mod tokenizer;
pub mod tool;
pub mod tool_calls;

pub use catch_panic::{Panic, catch_panic};
pub use detokenize::Detokenizer;
pub use error::Error;
pub use infill::{INFILL_FORMATS, InfillFormat};
pub use message::{ContentPart, MediaIndex, Message, Role, ToolArguments, ToolCall, ToolResult};
pub use output_parser::OutputParser;
pub use reasoning::{REASONING_FORMATS, ReasoningFormat};
pub use stop::{Keep, StopMatcher, Stopped};
pub use syntax::{CallEnding, Delta};
pub use template::{
    Adapted, ChatTemplate, GenerationPrompt, Limits, RenderInput, TemplateCaps, TemplateName, ToolPrompt,
};
pub use tokenizer::{AddSpecial, Cut, CutSide, SkipSpecial, TextTokens, Tokenizer, TokenizerFiles};
pub use tool::{CallRule, InputGrammar, Tool, ToolPlace};
pub use tool_calls::{TOOL_CALL_FORMATS, ToolCallFormat, ToolSchemas};
