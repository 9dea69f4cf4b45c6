//! Progress of long work on stderr: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Plain lines come when so many more percent are done.
const LINE_PERCENT: u64 = 10;

/// How much of some work is done.
pub struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    unit: Unit,
    /// Of plain lines, the percentage of the last one.
    shown: Option<u64>,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Items,
}

/// Progress in bytes.
pub fn bytes(what: &str) -> Progress {
    new(what, Unit::Bytes)
}

/// Progress in pieces of work.
pub fn items(what: &str) -> Progress {
    new(what, Unit::Items)
}

fn new(what: &str, unit: Unit) -> Progress {
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = match unit {
            Unit::Bytes => {
                "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}"
            }
            Unit::Items => "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}",
        };
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        bar
    });
    Progress { bar, what: what.to_owned(), unit, shown: None }
}

impl Progress {
    /// So much is done.
    pub fn set(&mut self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            return;
        }
        let percent = done * 100 / total.max(1);
        if percent == 100 || self.shown.is_none_or(|shown| percent >= shown + LINE_PERCENT) {
            if self.shown != Some(percent) {
                let whole = match self.unit {
                    Unit::Bytes => format!("{:.1} MB", total as f64 / 1e6),
                    Unit::Items => total.to_string(),
                };
                output::note(format!("{}: {percent}% of {whole}", self.what));
            }
            self.shown = Some(percent);
        }
    }

    /// All is done.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
