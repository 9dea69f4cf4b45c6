//! The engine inside of another program: a callback prints the text and stops after three sentences, and code of the
//! program keeps the model from saying a word twice in a row.
//!
//! `cargo run --release --example embed -- path/to/model 'Why is the sky blue?'`
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;

use omnibus_engine::{
    Chat, Input, LogitsProcessors, Message, ModelSource, OutputMode, Request, Role, Sampling, SequenceTokens,
    Settings, start_with,
};

/// A stop condition of our own: no field of a request says it.
const SENTENCES: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(question)) = (arguments.next(), arguments.next()) else {
        return Err("usage: embed MODEL QUESTION".into());
    };
    let model = ModelSource::Directory { path: path.into(), served_names: Vec::new() };
    let processors = LogitsProcessors::default().with("no-repeats", forbid_last);
    let engine = start_with(vec![model], Settings::default(), processors)?;
    let chat = Chat { messages: vec![Message::new(Role::User, question)], ..Chat::default() };
    let request = Request {
        sampling: Sampling {
            temperature: 0.7,
            processors: vec!["no-repeats".to_owned()],
            ..Sampling::default()
        },
        output: OutputMode::Message { calls: None },
        max_new_tokens: Some(512),
        ..Request::new("embedded", Input::Chat(chat))
    };
    let mut text = String::new();
    let generated = engine.generate(request, |delta, _tokens| {
        print!("{}", delta.text());
        _ = std::io::stdout().flush();
        text.push_str(delta.text());
        if text.matches(['.', '!', '?']).count() >= SENTENCES {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    println!("\n{generated:?}");
    Ok(())
}

/// A logits processor: the last token may not come again.
fn forbid_last(tokens: SequenceTokens<'_>, logits: &mut [f32]) {
    if let Some(logit) = tokens.answer.last().and_then(|last| logits.get_mut(*last as usize)) {
        *logit = f32::NEG_INFINITY;
    }
}
