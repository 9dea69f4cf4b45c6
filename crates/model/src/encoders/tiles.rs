//! Tiles of a picture that are encoded together, with embeddings of their places.
//!
//! Source: transformers `models/mllama/modeling_mllama.py`.

use mlx::Array;

use super::blueprint::Tiles;
use super::grid::Layout;
use super::manifest::{TILE_TABLES, TILES};
use crate::blocks::NormBlock;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The tiles' embeddings.
pub(super) struct TilesBlock {
    pub(super) spec: Tiles,
    /// Of tiles before the first layer and behind the local ones, and of rows in tiles.
    before: TileTable,
    after: TileTable,
    positions: TileTable,
    norm: NormBlock,
}

/// Embeddings of tiles, for each shape.
struct TileTable {
    /// `[shapes + 1, most · rows · hidden]`
    weight: Param,
    /// `[1]`, its hyperbolic tangent.
    gate: Param,
}

/// Where a picture's tiles are.
pub(super) struct TilePlaces {
    /// The number of their shape.
    shape: i32,
    /// How many are the picture's own.
    pub(super) count: usize,
}

/// Rows of tiles in the order in which they are encoded: the picture's own, then those that fill up.
pub(super) struct TileRows {
    /// `[rows]` i32.
    pub(super) order: Array,
    /// The tile of each, `[rows]` i32.
    tiles: Array,
    /// The picture's own.
    pub(super) real: usize,
}

impl TileTable {
    fn load(store: &mut Store, path: &str) -> Result<Self, LoadError> {
        Ok(Self {
            gate: store.vector(&format!("{path}.gate"))?.map(Array::tanh)?,
            weight: store.table(path)?,
        })
    }

    /// `[most, rows, hidden]`
    fn of(&self, shape: i32, (most, hidden): (usize, i32)) -> mlx::Result<Array> {
        let one = self.weight.slice(&[shape, 0], &[shape + 1, self.weight.dim(1)?])?;
        Ok(one.reshape(&[most as i32, -1, hidden])? * &self.gate)
    }
}

impl TilesBlock {
    pub(super) fn load(spec: &Tiles, store: &mut Store) -> Result<Self, LoadError> {
        let path = format!("encoder.{TILES}");
        let [before, after, positions] =
            TILE_TABLES.map(|name| TileTable::load(store, &format!("{path}.{name}")));
        let norm = store.norm(&format!("{path}.norm"), spec.norm, store.hidden())?;
        Ok(Self { spec: spec.clone(), before: before?, after: after?, positions: positions?, norm })
    }

    /// Fails for a picture of other tiles than the encoder has.
    pub(super) fn places(&self, layout: &Layout, views: usize) -> mlx::Result<TilePlaces> {
        match *layout {
            Layout::Tiles { shape, count }
                if views == self.spec.most
                    && (1..=views).contains(&count)
                    && (1..=self.spec.shapes).contains(&shape) =>
            {
                Ok(TilePlaces { shape: shape as i32, count })
            }
            _ => Err(mlx::Error::new(format!("{layout:?} with {views} views is not of {:?}", self.spec))),
        }
    }

    /// Patches, `[most, patches, hidden]`, with the embeddings of their tiles.
    pub(super) fn with_tiles(&self, patches: &Array, places: &TilePlaces) -> mlx::Result<Array> {
        Ok(patches + self.before.of(places.shape, (self.spec.most, patches.dim(-1)?))?)
    }

    /// Rows of tiles, `[most, rows, hidden]`, with their positions. `positions`: of a tile's rows, `[rows, hidden]`.
    pub(super) fn with_positions(
        &self,
        rows: &Array,
        positions: &Array,
        places: &TilePlaces,
    ) -> mlx::Result<Array> {
        let of_tiles = self.positions.of(places.shape, (self.spec.most, rows.dim(-1)?))?;
        let rest = self.positions.gate.negative()? + 1.0;
        Ok(rows + (positions * rest).expand_dims(&[0])? + of_tiles)
    }

    /// How `rows` rows of each tile, filled up, are ordered.
    pub(super) fn rows(&self, rows: usize, places: &TilePlaces) -> mlx::Result<TileRows> {
        let filled = rows.next_multiple_of(self.spec.multiple);
        let all = (0..self.spec.most).flat_map(|tile| (0..filled).map(move |row| (tile, row)));
        let is_own = |(tile, row): &(usize, usize)| *tile < places.count && *row < rows;
        let (own, others): (Vec<_>, Vec<_>) = all.partition(is_own);
        let (real, ordered) = (own.len(), [own, others].concat());
        let order: Vec<i32> = ordered.iter().map(|(tile, row)| (tile * filled + row) as i32).collect();
        let tiles: Vec<i32> = ordered.iter().map(|(tile, _)| *tile as i32).collect();
        let shape = [ordered.len() as i32];
        Ok(TileRows {
            order: Array::from_slice(&order, &shape)?,
            tiles: Array::from_slice(&tiles, &shape)?,
            real,
        })
    }

    /// What the global layers read, `[rows, hidden]`, of the local ones' rows.
    pub(super) fn between(&self, x: &Array, rows: &TileRows, places: &TilePlaces) -> mlx::Result<Array> {
        let of_tiles = self.after.of(places.shape, (self.spec.most, x.dim(-1)?))?.squeeze(&[1])?;
        Ok(self.norm.forward(x)? + of_tiles.take(&rows.tiles, 0)?)
    }
}
