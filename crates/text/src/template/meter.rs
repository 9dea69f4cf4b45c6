//! What a rendering may cost: steps, memory and output, all counted before they are spent.
//!
//! Invariant: the count depends on the template and its input alone, never on a clock, so a template that is
//! refused is refused everywhere. Every byte that lives in a value holds a [`Lease`], so memory that was given
//! back can be used again.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// Why a rendering ended early.
#[derive(Debug)]
pub(super) enum Fault {
    /// The template called `raise_exception`.
    Raised(String),
    /// The template did what Python would not do either.
    Failed(String),
    /// It wanted more than it may have; the text names what.
    Limit(&'static str),
}

impl Fault {
    pub fn failed<T>(message: impl Into<String>) -> Result<T, Fault> {
        Err(Fault::Failed(message.into()))
    }
}

/// The most one rendering may use, beyond a few times what it was given in messages and tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Operations, where a step is an expression, an item of a loop, or 16 bytes moved. Some 20 ns each.
    pub steps: u64,
    /// Bytes in values at one time.
    pub memory_bytes: usize,
    /// Bytes of the rendered text.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { steps: 20_000_000, memory_bytes: 64 << 20, output_bytes: 8 << 20 }
    }
}

impl Limits {
    /// Limits that leave room for `input_bytes` of messages, each byte of which may be copied a few times.
    pub(super) fn for_input(self, input_bytes: usize) -> Limits {
        Limits {
            steps: self.steps.saturating_add(4 * input_bytes as u64),
            memory_bytes: self.memory_bytes.saturating_add(input_bytes.saturating_mul(16)),
            output_bytes: self.output_bytes.saturating_add(input_bytes.saturating_mul(4)),
        }
    }
}

/// Counts one rendering. Clones count together.
#[derive(Clone)]
pub(super) struct Meter(Rc<Counts>);

struct Counts {
    steps_left: Cell<u64>,
    bytes_left: Cell<usize>,
}

impl Meter {
    pub fn new(limits: &Limits) -> Meter {
        Meter(Rc::new(Counts {
            steps_left: Cell::new(limits.steps),
            bytes_left: Cell::new(limits.memory_bytes),
        }))
    }

    pub fn spend(&self, steps: usize) -> Result<(), Fault> {
        match self.0.steps_left.get().checked_sub(steps as u64) {
            Some(left) => {
                self.0.steps_left.set(left);
                Ok(())
            }
            None => Err(Fault::Limit("steps")),
        }
    }

    /// Pays for looking at or moving `bytes`.
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), Fault> {
        self.spend(bytes / 16 + 1)
    }

    pub fn lease(&self, bytes: usize) -> Result<Lease, Fault> {
        let mut lease = Lease { meter: self.clone(), bytes: 0 };
        lease.grow(bytes)?;
        Ok(lease)
    }

    pub fn draft(&self) -> Result<Draft, Fault> {
        Ok(Draft { text: String::new(), lease: self.lease(48)? })
    }
}

/// Bytes that are in use until this is dropped.
pub(super) struct Lease {
    meter: Meter,
    bytes: usize,
}

impl Lease {
    pub fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        self.meter.spend_bytes(bytes)?;
        match self.meter.0.bytes_left.get().checked_sub(bytes) {
            Some(left) => {
                self.meter.0.bytes_left.set(left);
                self.bytes += bytes;
                Ok(())
            }
            None => Err(Fault::Limit("memory")),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let left = &self.meter.0.bytes_left;
        left.set(left.get() + self.bytes);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({})", self.bytes)
    }
}

/// Text that is being written, each piece paid for before it is copied.
#[derive(Debug)]
pub(super) struct Draft {
    text: String,
    lease: Lease,
}

impl Draft {
    pub fn push(&mut self, piece: &str) -> Result<(), Fault> {
        self.lease.grow(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    /// Writes `piece` `times` times, after making sure that all of it fits.
    pub fn repeat(&mut self, piece: &str, times: usize) -> Result<(), Fault> {
        self.lease.grow(piece.len().checked_mul(times).ok_or(Fault::Limit("memory"))?)?;
        for _ in 0..times {
            self.text.push_str(piece);
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.text.len()
    }

    pub fn finish(self) -> (String, Lease) {
        (self.text, self.lease)
    }
}
