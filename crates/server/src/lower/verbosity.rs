//! How long an answer should be: OpenAI's models know it, others get it in the system message.

use omnibus_engine::{ContentPart, Message, Role};

use crate::wire::verbosity::Verbosity;

/// Tells the model in the first system message, which stays the only one where a template takes no more.
pub fn tell(verbosity: Verbosity, messages: &mut Vec<Message>) {
    let text = match verbosity {
        Verbosity::Low => "Answer as briefly as possible.",
        Verbosity::Medium => return,
        Verbosity::High => "Answer in detail.",
    };
    match messages.first_mut() {
        Some(first) if first.role == Role::System => match first.content.last_mut() {
            Some(ContentPart::Text(system)) => system.push_str(&format!("\n\n{text}")),
            _ => first.content.push(ContentPart::Text(text.to_owned())),
        },
        _ => messages.insert(0, Message::new(Role::System, text)),
    }
}
