//! Counts what a rendering uses: every step and every byte of a value, before it is spent.
//!
//! Invariant: the count depends on the template and its input alone, never on a clock, so a template that is refused
//! on one machine is refused on all. Every byte in a value is held by a [`Reservation`] and is free again when the
//! value is dropped.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use crate::error::RenderError;
use crate::limits::Limits;

/// Counts one rendering. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Meter(Rc<Counts>);

#[derive(Debug)]
struct Counts {
    steps_left: Cell<u64>,
    bytes_left: Cell<usize>,
    value_depth: u16,
}

impl Meter {
    pub fn new(limits: &Limits) -> Meter {
        Meter(Rc::new(Counts {
            steps_left: Cell::new(limits.steps),
            bytes_left: Cell::new(limits.memory_bytes),
            value_depth: limits.value_depth,
        }))
    }

    /// How deep lists and dicts may nest.
    pub fn value_depth(&self) -> u16 {
        self.0.value_depth
    }

    pub fn spend(&self, steps: usize) -> Result<(), RenderError> {
        match self.0.steps_left.get().checked_sub(steps as u64) {
            Some(left) => {
                self.0.steps_left.set(left);
                Ok(())
            }
            None => Err(RenderError::Limit("steps")),
        }
    }

    /// Pays for reading or moving `bytes`.
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), RenderError> {
        self.spend(bytes / 16 + 1)
    }

    pub fn reserve(&self, bytes: usize) -> Result<Reservation, RenderError> {
        let mut reservation = Reservation { meter: self.clone(), bytes: 0 };
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Fails unless `bytes` could be reserved now. For intermediate values that are dropped at once.
    pub fn ensure_free(&self, bytes: usize) -> Result<(), RenderError> {
        self.reserve(bytes).map(drop)
    }

    /// An empty text.
    pub fn new_text(&self) -> Result<TextBuilder, RenderError> {
        Ok(TextBuilder { text: String::new(), reservation: self.reserve(48)? })
    }
}

/// Bytes that are in use until this is dropped.
pub(crate) struct Reservation {
    meter: Meter,
    bytes: usize,
}

impl Reservation {
    pub fn grow(&mut self, bytes: usize) -> Result<(), RenderError> {
        self.meter.spend_bytes(bytes)?;
        match self.meter.0.bytes_left.get().checked_sub(bytes) {
            Some(left) => {
                self.meter.0.bytes_left.set(left);
                self.bytes += bytes;
                Ok(())
            }
            None => Err(RenderError::Limit("memory")),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let left = &self.meter.0.bytes_left;
        left.set(left.get() + self.bytes);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({})", self.bytes)
    }
}

/// A text that is being written. Each piece is reserved before it is copied.
#[derive(Debug)]
pub(crate) struct TextBuilder {
    text: String,
    reservation: Reservation,
}

impl TextBuilder {
    pub fn push(&mut self, piece: &str) -> Result<(), RenderError> {
        self.reservation.grow(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    /// Writes `piece` `times` times, or nothing if not all of it fits.
    pub fn repeat(&mut self, piece: &str, times: usize) -> Result<(), RenderError> {
        self.reservation.grow(piece.len().checked_mul(times).ok_or(RenderError::Limit("memory"))?)?;
        for _ in 0..times {
            self.text.push_str(piece);
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.text.len()
    }

    pub fn finish(self) -> (String, Reservation) {
        (self.text, self.reservation)
    }
}
