//! Merges the event streams of all choices.

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use omnibus_engine::Event;

use crate::engine::Events;

/// Events with the index of their choice.
pub type ChoiceEvents = SelectAll<BoxStream<'static, (usize, Event)>>;

/// Merges the events of all choices, fairly. Dropping the result drops all of them.
pub fn merge(choices: Vec<Events>) -> ChoiceEvents {
    let tagged = |(choice, events): (usize, Events)| events.map(move |event| (choice, event)).boxed();
    select_all(choices.into_iter().enumerate().map(tagged))
}
