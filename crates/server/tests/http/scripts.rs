//! Conversations in which the scripted engine calls tools: the last message of the user has the steps, as in
//! `script: call s__echo {"text":"a"} & call f {} | say done`. Each answer is the next step.

use omnibus_engine::{
    CallEnding, ContentPart, Delta, EnergySource, EnergyUsage, Event, FinishReason, Input, Message, Role,
    Usage,
};

/// The events of the next step, if the conversation is a script. Prompts are 100 tokens longer with each step, and so is what
/// is cached of them.
pub fn events(input: &Input) -> Option<Vec<Event>> {
    let Input::Chat(chat) = input else { return None };
    let at = chat.messages.iter().rposition(|message| message.role == Role::User)?;
    let text = chat.messages[at].text()?;
    let (script, energy) = script_of(&text)?;
    // The parts of one answer may be messages of their own.
    let is_assistant = |message: &Message| message.role == Role::Assistant;
    let answers =
        chat.messages[at..].windows(2).filter(|pair| !is_assistant(&pair[0]) && is_assistant(&pair[1]));
    let step = answers.count();
    let line = script.split(" | ").nth(step).unwrap_or("say the end").to_owned();
    let delta = |delta| Event::Delta { delta, tokens: Vec::new() };
    let prompt_tokens = 100 * (step + 1);
    let mut events = vec![Event::Started { prompt_tokens, cached_tokens: 100 * step }];
    for (index, part) in line.split(" & ").enumerate() {
        let (kind, rest) = part.split_once(' ').unwrap_or((part, ""));
        match kind {
            "say" => events.push(delta(Delta::Text(rest.to_owned()))),
            "results" => events.push(delta(Delta::Text(results(&chat.messages).join(", ")))),
            "call" => {
                let (name, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                let id = format!("call-{step}-{index}");
                events.push(delta(Delta::ToolCallStart { id, name: name.to_owned() }));
                events.push(delta(Delta::ToolCallArguments(arguments.to_owned())));
                events.push(delta(Delta::ToolCallEnd(CallEnding::Complete)));
            }
            other => panic!("a script has no `{other}`"),
        }
    }
    let usage =
        Usage { prompt_tokens, cached_tokens: 100 * step, completion_tokens: 7, energy, ..Usage::default() };
    events.push(Event::Finished { reason: FinishReason::Stop, matched: None, usage });
    Some(events)
}

/// The steps, and the energy of each: that of `metered: …` is counted.
fn script_of(text: &str) -> Option<(String, Option<EnergyUsage>)> {
    let source = EnergySource::Estimate;
    let energy = EnergyUsage { prompt_microjoules: 2_000_000, completion_microjoules: 500_000, source };
    match text.strip_prefix("metered: ") {
        Some(script) => Some((script.to_owned(), Some(energy))),
        None => Some((text.strip_prefix("script: ")?.to_owned(), None)),
    }
}

/// The results of tools that the model has read.
fn results(messages: &[Message]) -> Vec<String> {
    let parts = messages.iter().flat_map(|message| &message.content);
    let text = |part: &ContentPart| match part {
        ContentPart::ToolResult(result) => Some(format!("{}={}", result.call_id, result.text)),
        _ => None,
    };
    parts.filter_map(text).collect()
}
