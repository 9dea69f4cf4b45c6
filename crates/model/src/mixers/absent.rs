//! No mixer: positions exchange nothing in layers of an MLP alone.

mod forward;

use super::{MixerCache, MixerSpec};
use crate::manifest::Scope;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};

/// No mixer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absent;

impl Rules for Absent {
    fn check_rules(&self, _broken: &mut Broken) {}
}

impl Tensors for Absent {
    fn name_tensors(&self, _at: &mut Scope) {}
}

impl Footprint for Absent {
    fn row_elements(&self, _hidden: usize) -> usize {
        0
    }
}

impl MixerSpec for Absent {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        Vec::new()
    }
}
