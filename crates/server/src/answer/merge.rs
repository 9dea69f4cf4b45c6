//! The events of several requests as one stream.

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all};
use omnibus_engine::Event;

use crate::engine::Events;

/// Events with the index of their choice.
pub type Merged = SelectAll<BoxStream<'static, (usize, Event)>>;

/// Merges the choices of an answer, fairly. Dropping it drops them all.
pub fn merge(choices: Vec<Events>) -> Merged {
    let tagged = |(choice, events): (usize, Events)| events.map(move |event| (choice, event)).boxed();
    select_all(choices.into_iter().enumerate().map(tagged))
}
