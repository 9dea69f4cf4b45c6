//! Headers of messages with a recipient, as Muse writes them: `<|start|>assistant to=NAME<|message|>`.
//!
//! They are dropped: what follows is text, or a call that names its tool again.

use crate::syntax::{Deltas, Flow, Input, Opening, Stop, Syntax};

/// The longest header, in bytes.
const MAX_HEADER: usize = 512;

/// The ends of messages.
pub(crate) const ENDS: &[Opening] = &[Opening::anywhere("<|eom|>"), Opening::anywhere("<|eot|>")];

/// Drops headers.
#[derive(Debug)]
pub(crate) struct Header;

impl Syntax for Header {
    fn openings(&self) -> &'static [Opening] {
        const OPENINGS: &[Opening] =
            &[Opening::anywhere("<|start|>assistant"), Opening::message_start(" to=")];
        OPENINGS
    }

    fn begin(&mut self) {}

    fn step(&mut self, input: &mut Input, out: &mut Deltas) -> Result<Flow, Stop> {
        let header =
            input.read(|peek| peek.until("<|message|>", MAX_HEADER).map(|text| !text.contains('\n')))?;
        if !header {
            return Err(Stop::No);
        }
        out.drop_whitespace();
        Ok(Flow::Done)
    }
}
