//! Memory pressure of the machine: caches shrink first, then no new requests are admitted, and `/health` says so.
//!
//! Invariant: what follows from a reading is decided by `memory_response`. A source that cannot be read means no pressure.

mod sources;

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::memory_response::{Pressure, Response};
use crate::message::{Command, CommandSender, WeakCommandSender};
use crate::status::EngineStatus;
pub(crate) use sources::of_this_machine;

/// Where readings come from.
pub(crate) trait PressureSource: Send {
    fn read(&mut self) -> Pressure;
}

/// Between two readings.
const INTERVAL: Duration = Duration::from_secs(5);

/// Starts the thread that reads a source until the engine is gone. Without a thread there is no response to pressure.
pub(crate) fn watch(
    mut source: Box<dyn PressureSource>,
    status: &Arc<EngineStatus>,
    commands: &CommandSender,
) {
    let (status, commands) = (Arc::downgrade(status), commands.downgrade());
    let body = move || {
        let mut response = Response::None;
        while let Some(next) = respond(response, source.as_mut(), &status, &commands) {
            response = next;
            std::thread::sleep(INTERVAL);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("omnibus-pressure".to_owned()).spawn(body) {
        tracing::warn!(%error, "memory pressure is not watched");
    }
}

/// Responds to one reading. `None` once the engine is gone.
fn respond(
    before: Response,
    source: &mut dyn PressureSource,
    status: &Weak<EngineStatus>,
    commands: &WeakCommandSender,
) -> Option<Response> {
    let status = status.upgrade()?;
    let response = before.after(source.read());
    if response != before {
        tracing::warn!(?response, "memory pressure has changed");
    }
    status.set_memory_response(response);
    metrics::gauge!("omnibus_memory_pressure").set(f64::from(response as u8));
    // Again while it lasts: another process of the engine may have been started.
    if (response, before) != (Response::None, Response::None) {
        commands.send(Command::MemoryPressure(response)).ok()?;
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::error::Disconnected;

    /// Readings of a machine that is not there.
    struct Fake(Vec<Pressure>);

    impl PressureSource for Fake {
        fn read(&mut self) -> Pressure {
            self.0.remove(0)
        }
    }

    #[test]
    fn caches_shrink_before_requests_are_refused_and_health_says_so() {
        use Pressure::{Critical, Normal, Warning};
        let readings = vec![Normal, Critical, Critical, Critical, Warning, Normal, Normal];
        let (sent, commands) = channel();
        let sender = CommandSender::new(move |command| sent.send(command).map_err(|_| Disconnected));
        let status = Arc::new(EngineStatus::new(1, Duration::from_secs(60)));
        let (weak, mut source, mut response) = (Arc::downgrade(&status), Fake(readings), Response::None);
        let mut seen = Vec::new();
        while !source.0.is_empty() {
            response = respond(response, &mut source, &weak, &sender.downgrade()).unwrap();
            let health = status.health();
            assert!(health.alive, "an engine under pressure still answers");
            seen.push((response, health.detail.contains("memory is short"), status.admits()));
        }
        let (none, shrink, refuse) = (Response::None, Response::ShrinkCaches, Response::RefuseRequests);
        let expected = [
            (none, false, true),
            (shrink, true, true),
            (refuse, true, false),
            (refuse, true, false),
            (shrink, true, true),
            (none, false, true),
            (none, false, true),
        ];
        assert_eq!(seen, expected);
        let sent: Vec<Command> = commands.try_iter().collect();
        assert_eq!(sent, [shrink, refuse, refuse, shrink, none].map(Command::MemoryPressure));
    }

    #[test]
    fn the_watch_ends_with_the_engine() {
        let status = Arc::new(EngineStatus::new(1, Duration::from_secs(60)));
        let engine = Arc::clone(&status);
        let sender = CommandSender::new(move |_| engine.health().alive.then_some(()).ok_or(Disconnected));
        let (watched, commands) = (Arc::downgrade(&status), sender.downgrade());
        watch(Box::new(Unlimited), &status, &sender);
        drop((status, sender));
        // A reading may be under way, which ends; a watch that kept the engine would be waited for until the test's limit.
        while watched.strong_count() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(respond(Response::ShrinkCaches, &mut Unlimited, &watched, &commands), None);
    }

    /// A machine with memory for everything.
    struct Unlimited;

    impl PressureSource for Unlimited {
        fn read(&mut self) -> Pressure {
            Pressure::Normal
        }
    }
}
