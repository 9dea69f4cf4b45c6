//! Rows of a pass that read features of media.

use std::rc::Rc;

use mlx::Array;
use omnibus_model::{CrossRows, CrossStates, FeatureRows, Model};

use super::MediaEncoding;
use super::feature_cache::missing;
use crate::worker::alignment;
use crate::worker::step_input::{CrossedRows, MediaRows};

impl MediaEncoding {
    /// Rows of a pass that attend to media, with keys and values of these. Fails if features are missing.
    pub(in crate::worker) fn crossed(
        &mut self,
        crossed: &[CrossedRows],
        model: &Model,
    ) -> mlx::Result<Vec<CrossRows>> {
        for key in crossed.iter().flat_map(|of| &of.keys) {
            self.features.make_cross_states(*key, model)?;
        }
        let of_rows = |of: &CrossedRows| {
            let states = |key| self.features.get(key)?.cross.as_ref().ok_or_else(missing);
            let states = of.keys.iter().map(|key| states(*key)).collect::<mlx::Result<Vec<_>>>()?;
            let weights = of.aligned.as_ref().map(|aligned| Rc::new(alignment::collector(aligned)));
            let states = CrossStates::joined(&states)?;
            Ok(CrossRows { rows: of.first..of.first + of.len, states, weights })
        };
        crossed.iter().map(of_rows).collect()
    }

    /// The rows of a pass that have features, with them. Fails if features are missing.
    pub(in crate::worker) fn rows(&self, media: &[MediaRows]) -> mlx::Result<Option<FeatureRows>> {
        let (mut rows, mut of_layers) = (Vec::new(), Vec::<Vec<Array>>::new());
        for of in media {
            let cached = self.features.get(of.key)?;
            let layers = std::iter::once(&cached.features.rows).chain(&cached.features.deepstack);
            let parts = layers.map(|layer| slice(layer, of)).collect::<mlx::Result<Vec<_>>>()?;
            of_layers.resize(of_layers.len().max(parts.len()), Vec::new());
            for (layer, part) in of_layers.iter_mut().zip(parts) {
                layer.push(part);
            }
            rows.extend(of.first..of.first + of.len);
        }
        let joined = |parts: Vec<Array>| match parts.as_slice() {
            [one] => Ok(one.clone()),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 0),
        };
        let mut layers = of_layers.into_iter().map(joined).collect::<mlx::Result<Vec<_>>>()?.into_iter();
        Ok(layers.next().map(|features| FeatureRows { rows, features, deepstack: layers.collect() }))
    }
}

fn slice(features: &Array, rows: &MediaRows) -> mlx::Result<Array> {
    let [count, width] = features.dims()?;
    let (from, to) = (rows.from as i32, (rows.from + rows.len) as i32);
    if to > count {
        return Err(mlx::Error::new(format!("a medium has {count} features; its prompt has room for {to}")));
    }
    features.slice(&[from, 0], &[to, width])
}
