//! Lowers `POST /infill`.

use omnibus_engine::Input;

use super::{Caller, GenerationBatch, generation};
use crate::wire::infill::InfillRequest;

/// The engine request of an infill.
pub fn lower(wire: InfillRequest, caller: &Caller) -> GenerationBatch {
    let InfillRequest { generation: shared, prefix, suffix, files } = wire;
    let request = generation::lower(&shared, Input::Infill { prefix, suffix, files }, caller);
    GenerationBatch { prompts: vec![request], n: 1 }
}
