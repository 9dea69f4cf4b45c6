//! Which modules are packed with which bits: the architecture's own rules, or mlx-lm's mixed recipes.

use std::collections::BTreeMap;

use mlx::QuantMode;

use super::layout::Layout;
use super::packing::Module;
use crate::config::ConfigError;
use crate::quantization::QuantizationChoice;

/// What differs by module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// One packing, and 8 bits for modules that the architecture needs exact: routers, above all.
    Uniform,
    /// More bits for the head, and for values and downward projections of the first, the last and every third layer.
    Mixed {
        /// Bits of most modules.
        low: i32,
        /// Bits of those.
        high: i32,
    },
}

/// mlx-lm's names of mixed recipes.
const MIXED: &[(&str, i32, i32)] =
    &[("mixed_2_6", 2, 6), ("mixed_3_4", 3, 4), ("mixed_3_6", 3, 6), ("mixed_4_6", 4, 6)];

/// The bits and the groups of modules that need them.
const EXACT: QuantizationChoice = QuantizationChoice { group: 64, bits: 8, mode: QuantMode::Affine };

impl Recipe {
    /// The recipe with mlx-lm's name.
    pub fn from_name(name: &str) -> Option<Self> {
        MIXED.iter().find(|row| row.0 == name).map(|row| Self::Mixed { low: row.1, high: row.2 })
    }

    /// The packing of each module that is packed, by the name of its weight.
    pub(super) fn choices(
        self,
        modules: &BTreeMap<String, Module>,
        layout: &Layout,
        default: QuantizationChoice,
        layers: usize,
    ) -> Result<BTreeMap<String, QuantizationChoice>, ConfigError> {
        let paths = modules.keys().filter_map(|name| name.strip_suffix(".weight"));
        let place = paths
            .filter(|path| path.contains("down_proj"))
            .find_map(|path| path.split('.').position(|part| part.parse::<usize>().is_ok()));
        if matches!(self, Self::Mixed { .. }) && place.is_none() {
            return Err(ConfigError::Unsupported {
                field: "quant_predicate".to_owned(),
                found: "mixed".to_owned(),
                supported: "architectures with a `down_proj`".to_owned(),
            });
        }
        let packable = modules.iter().filter_map(|(name, module)| {
            let path = name.strip_suffix(".weight")?;
            let shape = module.tensors.weight.shape();
            let inputs = shape.last().copied()?;
            let has = |other: &str| modules.contains_key(&format!("{other}.weight"));
            let is_kept = self == Self::Uniform && layout.is_kept(path, layers, has);
            let fits = !is_kept
                && module.choice.is_none()
                && matches!(shape.len(), 2 | 3)
                && inputs % default.group == 0
                && !layout.is_float(path);
            fits.then_some((name, path, inputs))
        });
        let choice = |path: &str, inputs: i32| match self {
            Self::Uniform if layout.has_eight_bits(path) && inputs % EXACT.group == 0 => EXACT,
            Self::Uniform => default,
            Self::Mixed { low, high } => {
                let part = place.and_then(|place| path.split('.').nth(place));
                let layer = part.and_then(|part| part.parse().ok()).unwrap_or(0);
                let bits = if has_more_bits(path, layer, layers) { high } else { low };
                QuantizationChoice { bits, mode: QuantMode::Affine, ..default }
            }
        };
        Ok(packable.map(|(name, path, inputs)| (name.clone(), choice(path, inputs))).collect())
    }
}

/// Source: mlx-lm's `convert.py`, which follows llama.cpp's Q4_K_M.
fn has_more_bits(path: &str, layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    // A layer before the first eighth has more anyway, whatever its distance.
    let third = layer.checked_sub(eighth).is_some_and(|distance| distance % 3 == 2);
    let chosen = layer < eighth || layer >= 7 * layers / 8 || third;
    let wide = ["v_proj", "v_a_proj", "v_b_proj", "down_proj"].iter().any(|name| path.contains(name));
    path.contains("lm_head") || (wide && chosen)
}

#[test]
fn layers_with_more_bits_are_mlx_lms() {
    // Of 16 layers, by mlx-lm 0.32.2: the first 2, the last 2, and every third from the fourth.
    let chosen: Vec<usize> =
        (0..16).filter(|layer| has_more_bits("model.layers.0.mlp.down_proj", *layer, 16)).collect();
    assert_eq!(chosen, [0, 1, 4, 7, 10, 13, 14, 15]);
    assert!(has_more_bits("lm_head", 0, 16) && !has_more_bits("model.layers.0.mlp.up_proj", 0, 16));
}
