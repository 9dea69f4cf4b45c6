//! A tower with its weights: from pixels to rows.

use mlx::{Array, Dtype};

use super::block::BlockOf;
use super::blueprint::ConvTower;
use super::fusion::FusionBlock;
use super::map::{Convolution, Normed, Product};
use crate::encoders::grid::{Grid, View};
use crate::weights::{LoadError, Store};

/// A tower with its weights.
pub(in crate::encoders) struct TowerBlock {
    stem: Normed,
    stages: Vec<Vec<BlockOf>>,
    fusion: FusionBlock,
    /// Which stages are fused.
    fused: Vec<usize>,
    side: usize,
}

impl TowerBlock {
    pub(in crate::encoders) fn load(tower: &ConvTower, store: &mut Store) -> Result<Self, LoadError> {
        let path = "encoder.conv_stem";
        let conv = format!("{path}.conv");
        let stem = Convolution::load(store, &conv, 2)?.with_bias(store, &conv)?;
        let (norm, to) = (format!("{path}.bn"), (tower.norm, tower.stem));
        let stem = Normed::new(Product::Convolution(stem), (&mut *store, &norm), to, Some(tower.act))?;
        let mut stages = Vec::with_capacity(tower.stages.len());
        for (number, stage) in tower.stages.iter().enumerate() {
            let mut blocks = Vec::with_capacity(stage.len());
            for (index, block) in stage.iter().enumerate() {
                let path = format!("encoder.blocks.{number}.{index}");
                let block = BlockOf::load(block, tower, store, &path)?;
                store.params().evaluate()?;
                blocks.push(block);
            }
            stages.push(blocks);
        }
        let fusion = FusionBlock::load(tower, store, "encoder.msfa")?;
        store.params().evaluate()?;
        Ok(Self { stem, stages, fusion, fused: tower.fusion.stages.clone(), side: tower.fusion.side })
    }

    /// Rows `[count · side · side, hidden]` of a view's pixels, `[count, channels, height, width]`, and where they are.
    /// `stages` gets what each block makes.
    pub(in crate::encoders) fn forward(
        &self,
        view: &View,
        dtype: Dtype,
        stages: &mut Vec<Array>,
    ) -> mlx::Result<(Array, Grid)> {
        let [count, _, _, _] = view.pixels.dims()?;
        let pixels = view.pixels.astype(dtype)?.transpose(&[0, 2, 3, 1])?;
        let mut x = self.stem.forward(&pixels)?;
        let mut maps = Vec::with_capacity(self.fused.len());
        for (number, stage) in self.stages.iter().enumerate() {
            for block in stage {
                x = block.forward(&x)?;
                stages.push(x.clone());
            }
            if self.fused.contains(&number) {
                maps.push(x.clone());
            }
        }
        let grid = Grid { count: count as usize, rows: self.side, columns: self.side };
        Ok((self.fusion.forward(&maps)?, grid))
    }
}
