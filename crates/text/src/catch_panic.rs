//! Panics turned into errors, without a message on stderr.
//!
//! A caught panic is reported once, by the caller. The process's panic hook would print it as well, with a backtrace, so
//! the hook is silent on a thread while it runs [`catch_panic`] and keeps the panic's message and place for the error.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// A caught panic: its message, and the line of the source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({place})")]
pub struct Panic {
    /// The message.
    pub message: String,
    /// The file and line, or `unknown`.
    pub place: String,
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static LAST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// Counts the calls of [`catch_panic`] on this thread, however they end.
struct Caught;

impl Caught {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs `work`; a panic becomes an error. The caller drops or replaces what the panic may have left half-done.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |info| if DEPTH.get() > 0 { keep(info) } else { print(info) }));
    });
    LAST.take();
    let caught = Caught::enter();
    let result = catch_unwind(AssertUnwindSafe(work));
    drop(caught);
    result.map_err(|payload| LAST.take().unwrap_or_else(|| without_hook(payload.as_ref())))
}

/// A panic that was raised without the hook.
fn without_hook(payload: &(dyn Any + Send)) -> Panic {
    Panic { message: message(payload), place: "unknown".to_owned() }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

fn keep(info: &PanicHookInfo<'_>) {
    let place =
        info.location().map_or_else(|| "unknown".to_owned(), |at| format!("{}:{}", at.file(), at.line()));
    LAST.set(Some(Panic { message: message(info.payload()), place }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_place() {
        assert_eq!(catch_panic(|| 3), Ok(3));
        let panic = catch_panic(|| -> usize { panic!("wheel {}", 4) }).unwrap_err();
        assert_eq!(panic.message, "wheel 4");
        assert!(panic.to_string().contains("catch_panic.rs:"), "{panic}");
    }

    #[test]
    fn nested_calls_catch_their_own_panics() {
        let outer = catch_panic(|| {
            assert!(catch_panic(|| panic!("inner")).is_err());
            panic!("outer")
        });
        assert_eq!(outer.unwrap_err().message, "outer");
        assert_eq!(DEPTH.get(), 0);
    }

    #[test]
    fn a_panic_without_the_hook_has_its_message() {
        let panic = catch_panic(|| std::panic::resume_unwind(Box::new("quiet"))).unwrap_err();
        assert_eq!((panic.message.as_str(), panic.place.as_str()), ("quiet", "unknown"));
    }
}
