//! Memory of a step's intermediate results, from the blueprint alone.

use crate::blueprint::{Blueprint, LayerSpec};

/// Results of how many ops are alive at once. MLX allocates memory when an op is launched, launches ahead of what
/// computes, and stops when it is this far ahead; measured on the CPU with models of 8 and 16 layers, where it is the
/// same at 128, 512 and 2048 rows.
const OPS_AHEAD: f64 = 59.0;
/// Ops of a layer: two norms that also add, two projections and attention, two projections and an activation.
const OPS_OF_A_LAYER: f64 = 8.0;
/// Copies of the logits that sampling makes.
const LOGITS: usize = 3;

impl Blueprint {
    /// Bytes of intermediate results, at most, of steps of `rows` rows of which `sampled` are sampled, in activations
    /// of `element` bytes. Keys and values are not counted.
    pub fn scratch_bytes(&self, rows: usize, sampled: usize, element: usize) -> u64 {
        let widths: f64 = self.layers.iter().map(|layer| self.width(layer) as f64).sum();
        let alive = (OPS_AHEAD / (OPS_OF_A_LAYER * self.layers.len().max(1) as f64)).min(1.0);
        let activations = rows as f64 * widths * alive * element as f64;
        activations as u64 + (LOGITS * sampled * self.vocab * size_of::<f32>()) as u64
    }

    /// Elements that a row has in a layer, all its intermediate results together.
    fn width(&self, layer: &LayerSpec) -> usize {
        // Each norm gives the normed row and the sum it is of.
        let norms = 2 * self.hidden * (1 + usize::from(layer.mlp.is_some()));
        let mlp = layer.mlp.iter().chain(layer.shortcut.iter().map(|(_, mlp)| mlp));
        let mlp: usize = mlp.map(|mlp| mlp.spec().row_elements(self.hidden)).sum();
        layer.mixer.spec().row_elements(self.hidden) + norms + mlp
    }
}
