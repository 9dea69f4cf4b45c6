//! Merges the event streams of all choices.

use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{Stream, StreamExt};

use super::Event;

/// Events with the index of their choice.
pub type ChoiceEvents = SelectAll<BoxStream<'static, (usize, Event)>>;

/// Merges the events of all choices, fairly. Dropping the result drops all of them.
pub fn merge<S: Stream<Item = Event> + Send + 'static>(choices: Vec<S>) -> ChoiceEvents {
    let tagged = |(choice, events): (usize, S)| events.map(move |event| (choice, event)).boxed();
    select_all(choices.into_iter().enumerate().map(tagged))
}
