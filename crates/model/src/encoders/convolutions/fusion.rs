//! From the outputs of some stages to rows.

use mlx::Array;

use super::block::linear;
use super::blueprint::ConvTower;
use super::map::Normed;
use crate::blocks::NormBlock;
use crate::encoders::canvas::resized;
use crate::weights::{LoadError, Store};

/// A fusion with its weights.
pub(super) struct FusionBlock {
    side: usize,
    expansion: Normed,
    projection: Normed,
    norm: NormBlock,
}

impl FusionBlock {
    pub(super) fn load(tower: &ConvTower, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let (norm, hidden) = (tower.norm, store.hidden());
        let below = format!("{path}.ffn.pw_exp");
        let expansion = linear(norm, (store, &below), tower.fusion.inner, Some(tower.act))?;
        let below = format!("{path}.ffn.pw_proj");
        let projection = linear(norm, (store, &below), hidden, None)?;
        let norm = store.norm(&format!("{path}.norm"), norm, hidden)?;
        Ok(Self { side: tower.fusion.side, expansion, projection, norm })
    }

    /// Maps, the largest first, to rows `[count · side · side, hidden]`.
    pub(super) fn forward(&self, maps: &[Array]) -> mlx::Result<Array> {
        let [largest, ..] = maps else { return Err(mlx::Error::new("a fusion has maps")) };
        let [_, height, width, _] = largest.dims()?;
        let maps = maps.iter().map(|map| repeated(map, [height, width])).collect::<mlx::Result<Vec<_>>>()?;
        let x = mlx::concatenate(&maps.iter().collect::<Vec<_>>(), -1)?;
        let x = self.pooled(&self.projection.forward(&self.expansion.forward(&x)?)?)?;
        self.norm.forward(&x)?.flatten(0, 2)
    }

    /// Means of squares, or samples between them where squares do not fill the map.
    fn pooled(&self, x: &Array) -> mlx::Result<Array> {
        let [count, height, width, channels] = x.dims()?;
        let side = self.side as i32;
        if height % side != 0 || width % side != 0 {
            return resized(x, [self.side; 2]);
        }
        let squares = x.reshape(&[count, side, height / side, side, width / side, channels])?;
        squares.mean(&[2, 4])
    }
}

/// A map with places repeated, so that it has this height and width.
fn repeated(map: &Array, to: [i32; 2]) -> mlx::Result<Array> {
    let [_, height, width, _] = map.dims()?;
    let places = |from: i32, to: i32| {
        let places: Vec<i32> = (0..to).map(|place| place * from / to).collect();
        Array::from_slice(&places, &[to])
    };
    match [height, width] == to {
        true => Ok(map.clone()),
        false => map.take(&places(height, to[0])?, 1)?.take(&places(width, to[1])?, 2),
    }
}
