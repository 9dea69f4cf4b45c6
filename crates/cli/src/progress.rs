//! Progress of long work on stderr: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Plain lines come when so many more percent are done.
const LINE_PERCENT: u64 = 10;

/// How much of some bytes is done.
pub struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    /// Of plain lines, the percentage of the last one.
    shown: Option<u64>,
}

/// Progress in bytes.
pub fn bytes(what: &str) -> Progress {
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        bar
    });
    Progress { bar, what: what.to_owned(), shown: None }
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
                output::note(format!("{}: {percent}% of {:.1} MB", self.what, total as f64 / 1e6));
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
