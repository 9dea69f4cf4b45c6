//! Any bytes as a template: it ends in a text or an error, within its limits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use omnibus_jinja::{Context, Limits, Template};

fuzz_target!(|source: &str| {
    let limits = Limits { steps: 200_000, memory_bytes: 4 << 20, output_bytes: 1 << 20, ..Limits::default() };
    let Ok(template) = Template::parse(source, &limits) else { return };
    let mut context = Context::new(&limits);
    let Ok(text) = context.text("naïve 🚌 <b>") else { return };
    let Ok(message) = context.dict(vec![("role", text.clone()), ("content", text.clone())]) else { return };
    let Ok(messages) = context.list(vec![message.clone(), message]) else { return };
    context.define("text", text);
    context.define("messages", messages);
    context.define_function("strftime_now", "format", |format| Ok(format.to_owned()));
    if let Ok(text) = template.render(context) {
        assert!(text.len() <= limits.output_bytes);
    }
});
