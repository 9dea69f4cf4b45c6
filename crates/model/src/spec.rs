//! What a part of a layer, a mixer or an MLP, says of itself: one trait for each subject.

use crate::manifest::Scope;
use crate::rules::Broken;

/// Rules that its types cannot express.
pub(crate) trait Rules {
    /// Reports those that do not hold.
    fn check_rules(&self, broken: &mut Broken);
}

/// What it reads of a checkpoint.
pub(crate) trait Tensors {
    /// Names its tensors.
    fn name_tensors(&self, at: &mut Scope);
}

/// Memory of its intermediate results.
pub(crate) trait Footprint {
    /// Elements of one row's intermediate results, its output included, with a residual stream of this width.
    fn row_elements(&self, hidden: usize) -> usize;
}
