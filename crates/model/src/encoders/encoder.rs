//! An encoder with its weights: from one picture to its features.

use mlx::{Array, Dtype};

use super::blueprint::{ClassToken, EncoderBlueprint, PatchOrder};
use super::canvas::SeparatorVectors;
use super::connector::Connector;
use super::convolutions::TowerBlock;
use super::grid::{EncoderInput, Grid, Layout, View, windows};
use super::layer::{Group, LayerBlock, groups};
use super::manifest::{
    CLASS_TOKEN, CONNECTOR, DEEPSTACK, INPUT_NORM, OUTPUT_NORM, PATCH_NORM, PATCHES, PLACEHOLDER, POSITIONS,
    PROJECTION,
};
use super::positions::Positions;
use super::rotary::Angles;
use super::square_merger::SquareMergerBlock;
use super::tiles::TilesBlock;
use crate::blocks::{Linear, NormBlock};
use crate::error::Error;
use crate::kernel_choice::KernelChoice;
use crate::ops::{Kernels, Ops};
use crate::params::Param;
use crate::quantization::Quantization;
use crate::weights::{LoadError, Source, Weights};

/// An encoder with its weights. Stays on the thread that built it.
pub struct Encoder {
    blueprint: EncoderBlueprint,
    ops: Ops,
    dtype: Dtype,
    rows: RowsOf,
    /// `[1, 1, hidden]`
    class_token: Option<Param>,
    patch_norm: Option<NormBlock>,
    positions: Option<Positions>,
    input_norm: Option<NormBlock>,
    layers: Vec<LayerBlock>,
    tiles: Option<TilesBlock>,
    squares: Option<SquareMergerBlock>,
    output_norm: Option<NormBlock>,
    connector: Connector,
    separators: SeparatorVectors,
    projection: Connector,
    /// `[1, features]`
    placeholder: Option<Param>,
    deepstack: Vec<Connector>,
}

/// What makes rows of pixels.
enum RowsOf {
    Patches(Box<Linear>),
    Convolutions(Box<TowerBlock>),
}

/// What one picture becomes.
pub struct Features {
    /// The rows that take the place of its tokens, in their order, `[N, features]`.
    pub rows: Array,
    /// What joins the same rows behind the text model's first layers, one of the same shape for each.
    pub deepstack: Vec<Array>,
}

impl Encoder {
    /// Reads the config and the weights of a checkpoint, and makes those of the encoder resident. `None` if its family has
    /// no encoder here.
    pub fn load(source: &Source, kernels: Kernels) -> Result<Option<Self>, Error> {
        let Some((blueprint, quantization)) = super::weights::described(source, super::read)? else {
            return Ok(None);
        };
        Self::build(blueprint, quantization, source.weights()?, kernels).map(Some)
    }

    /// The encoder of a blueprint over the tensors of a checkpoint.
    pub fn build(
        blueprint: EncoderBlueprint,
        quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
    ) -> Result<Self, Error> {
        let mut store = blueprint.store(quantization, weights, kernels)?;
        let (hidden, order) = (blueprint.hidden as i32, blueprint.order);
        let at = |name: &str| format!("encoder.{name}");
        let has_token = blueprint.class_token != ClassToken::Absent;
        let class_token = has_token.then(|| store.vector(&at(CLASS_TOKEN))).transpose()?;
        let positions = blueprint.positions.count().map(|_| store.table(&at(POSITIONS))).transpose()?;
        let mut norm_at = |name: &str, norm| store.norm(&at(name), norm, hidden as usize);
        let patch_norm = blueprint.patch_norm.map(|norm| norm_at(PATCH_NORM, norm)).transpose()?;
        let input_norm = blueprint.input_norm.map(|norm| norm_at(INPUT_NORM, norm)).transpose()?;
        let output_norm = blueprint.output_norm.map(|norm| norm_at(OUTPUT_NORM, norm)).transpose()?;
        let mut layers = Vec::with_capacity(blueprint.layers.len());
        for (number, layer) in blueprint.layers.iter().enumerate() {
            let layer = LayerBlock::load(layer, &mut store, &at(&format!("layers.{number}")))?;
            store.params().evaluate()?;
            layers.push(layer);
        }
        let tiles = blueprint.tiles.as_ref().map(|spec| TilesBlock::load(spec, &mut store)).transpose()?;
        let squares = blueprint.squares.as_ref();
        let squares = squares.map(|spec| SquareMergerBlock::load(spec, &mut store)).transpose()?;
        let width = blueprint.hidden * blueprint.joined.len().max(1);
        let connector =
            Connector::load_over(&blueprint.connector, (order, width), &mut store, &at(CONNECTOR))?;
        let placeholder = blueprint.placeholder.then(|| store.vector(&at(PLACEHOLDER))).transpose()?;
        let separators = SeparatorVectors::load(&blueprint, &mut store)?;
        let connected = (order, blueprint.connected());
        let projection = Connector::load_over(&blueprint.projection, connected, &mut store, &at(PROJECTION))?;
        let deepstack = blueprint.deepstack.iter().enumerate().map(|(number, deep)| {
            Connector::load(&deep.connector, order, &mut store, &at(&format!("{DEEPSTACK}.{number}")))
        });
        let deepstack = deepstack.collect::<Result<Vec<_>, LoadError>>()?;
        let encoder = Self {
            ops: store.ops(),
            dtype: store.activations(),
            rows: match &blueprint.convolutions {
                Some(tower) => RowsOf::Convolutions(Box::new(TowerBlock::load(tower, &mut store)?)),
                None => RowsOf::Patches(Box::new(store.linear(&at(PATCHES))?)),
            },
            class_token: class_token
                .map(|token| token.map(|token| token.reshape(&[1, 1, hidden])))
                .transpose()?,
            positions: positions.map(|weight| Positions { table: blueprint.positions, weight }),
            patch_norm,
            input_norm,
            layers,
            output_norm,
            connector,
            separators,
            projection,
            placeholder,
            squares,
            tiles,
            deepstack,
            blueprint,
        };
        assert!(store.is_empty(), "the check left only what the blocks take");
        store.params().evaluate()?;
        Ok(encoder)
    }

    /// Uses the GPU kernels that were chosen for the model.
    pub fn use_kernels(&self, choice: KernelChoice) {
        self.ops.set_choice(choice);
    }

    /// What the encoder is.
    pub fn blueprint(&self) -> &EncoderBlueprint {
        &self.blueprint
    }

    /// What activations are in.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The features of one picture, lazily. Fails if its patches do not fit its grid.
    pub fn encode(&self, input: &EncoderInput) -> mlx::Result<Features> {
        self.encode_in_stages(input).map(|(features, _)| features)
    }

    /// The features of one picture, with what attention and the MLP of each layer make of each view, in order:
    /// evaluated one after the other, they divide the work into parts.
    pub fn encode_in_stages(&self, input: &EncoderInput) -> mlx::Result<(Features, Vec<Array>)> {
        let mut stages = Vec::with_capacity(input.views.len() * self.layers.len());
        let of_views = input.views.iter().map(|view| match &self.tiles {
            Some(tiles) => self.encode_tiles(tiles, view, &input.layout, &mut stages),
            None => self.encode_view(view, &input.layout, &mut stages),
        });
        let of_views = of_views.collect::<mlx::Result<Vec<_>>>()?;
        let joined = |parts: Vec<&Array>| match parts.as_slice() {
            [] => Err(mlx::Error::new("a picture has at least one view")),
            [one] => Ok((*one).clone()),
            several => mlx::concatenate(several, 0),
        };
        let deep = |which: usize| of_views.iter().filter_map(|of| of.deepstack.get(which)).collect();
        let rows = joined(of_views.iter().map(|of| &of.rows).collect())?;
        let views = input.views.iter().map(|view| view.grid.count).sum();
        let rows = input.layout.arranged(rows, views, &self.separators)?;
        let grid = Grid { count: 1, rows: 1, columns: rows.dim(0)? as usize };
        let rows = self.projection.forward(&rows, grid)?;
        let features = Features {
            rows: match &self.placeholder {
                Some(embedding) => rows + embedding,
                None => rows,
            },
            deepstack: (0..self.deepstack.len())
                .map(|which| joined(deep(which)))
                .collect::<mlx::Result<_>>()?,
        };
        Ok((features, stages))
    }

    fn encode_view(&self, view: &View, layout: &Layout, stages: &mut Vec<Array>) -> mlx::Result<Features> {
        let (patches, mut grid) = self.rows_of(view, stages)?;
        let patches = match &self.patch_norm {
            Some(norm) => norm.forward(&patches)?,
            None => patches,
        };
        let mut x = self.with_positions(&patches, grid)?;
        if let Some(norm) = &self.input_norm {
            x = norm.forward(&x)?;
        }
        let mut whole = vec![Group { count: grid.count, len: x.dim(0)? as usize / grid.count }];
        let mut angles = self.angles(grid)?;
        let windows = self.windows(grid)?;
        if let Some(windows) = &windows {
            x = x.take(&windows.order, 0)?;
            angles = angles.map(|angles| angles.take(&windows.order)).transpose()?;
        }
        let features = |connector: &Connector, x: &Array, grid: Grid| -> mlx::Result<Array> {
            let features = connector.forward_as(&self.without_class_token(x, grid)?, grid, layout)?;
            match &windows {
                Some(windows) => features.take(&windows.back, 0),
                None => Ok(features),
            }
        };
        let (mut deepstack, mut joined) = (Vec::new(), Vec::new());
        for (number, layer) in self.layers.iter().enumerate() {
            let groups = match &windows {
                Some(windows) if layer.is_windowed() => &windows.groups,
                _ => &whole,
            };
            x = layer.forward(&x, groups, angles.as_ref(), stages)?;
            if let Some(squares) = self.squares.as_ref().filter(|squares| squares.layer == number) {
                x = squares.forward(&x, grid)?;
                grid = grid.merged(2);
                whole = vec![Group { count: grid.count, len: grid.view() }];
            }
            if self.blueprint.joined.contains(&number) {
                joined.push((number, x.clone()));
            }
            for (deep, connector) in self.blueprint.deepstack.iter().zip(&self.deepstack) {
                if deep.layer == number {
                    deepstack.push(features(connector, &x, grid)?);
                }
            }
        }
        if let Some(rows) = self.joined(&joined)? {
            x = rows;
        }
        if let Some(norm) = &self.output_norm {
            x = norm.forward(&x)?;
        }
        Ok(Features { rows: features(&self.connector, &x, grid)?, deepstack })
    }

    /// Rows of a view's pixels, `[rows, hidden]`, and where they are.
    fn rows_of(&self, view: &View, stages: &mut Vec<Array>) -> mlx::Result<(Array, Grid)> {
        let (grid, order) = (view.grid, self.blueprint.order);
        let patches = match &self.rows {
            RowsOf::Patches(patches) => patches,
            RowsOf::Convolutions(tower) => return tower.forward(view, self.dtype, stages),
        };
        if let PatchOrder::Squares(side) = order
            && !(grid.rows.is_multiple_of(side) && grid.columns.is_multiple_of(side))
        {
            return Err(mlx::Error::new(format!("squares of {side} by {side} patches fill {grid:?}")));
        }
        let pixels = self.blueprint.patches.cut(view, order)?.astype(self.dtype)?;
        Ok((patches.forward(&pixels)?, grid))
    }

    /// All tiles of a picture together, with those that fill it up.
    fn encode_tiles(
        &self,
        tiles: &TilesBlock,
        view: &View,
        layout: &Layout,
        stages: &mut Vec<Array>,
    ) -> mlx::Result<Features> {
        let (most, hidden) = (view.grid.count as i32, self.blueprint.hidden as i32);
        let places = tiles.places(layout, view.grid.count)?;
        let patches = self.rows_of(view, stages)?.0.reshape(&[most, -1, hidden])?;
        let mut x = tiles.with_tiles(&patches, &places)?;
        if let Some(token) = &self.class_token {
            let token = token.broadcast_to(&[most, 1, hidden])?.astype(x.dtype()?)?;
            x = mlx::concatenate(&[&token, &x], 1)?;
        }
        let rows = x.dim(1)?;
        if let Some(positions) = &self.positions {
            if positions.weight.dim(0)? != rows {
                return Err(mlx::Error::new(format!("{:?} has {} positions", view.grid, rows)));
            }
            x = tiles.with_positions(&x, &positions.weight, &places)?;
        }
        if let Some(norm) = &self.input_norm {
            x = norm.forward(&x)?;
        }
        let ordered = tiles.rows(rows as usize, &places)?;
        let filled = ordered.order.dim(0)? / most;
        x = x.pad(&[(0, 0), (0, filled - rows), (0, 0)], 0.0)?.reshape(&[-1, hidden])?;
        x = x.take(&ordered.order, 0)?;
        let mut joined = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            x = layer.forward_filled(&x, ordered.real, stages)?;
            if self.blueprint.joined.contains(&number) {
                joined.push((number, x.clone()));
            }
            if number + 1 == tiles.spec.local_layers {
                x = tiles.between(&x, &ordered, &places)?;
            }
        }
        let x = self.joined(&joined)?.unwrap_or(x);
        let x = x.slice(&[0, 0], &[ordered.real as i32, x.dim(1)?])?;
        Ok(Features { rows: self.connector.forward_as(&x, view.grid, layout)?, deepstack: Vec::new() })
    }

    /// Rows of some layers as one, in the order that the blueprint names them.
    fn joined(&self, of_layers: &[(usize, Array)]) -> mlx::Result<Option<Array>> {
        if self.blueprint.joined.is_empty() {
            return Ok(None);
        }
        let rows =
            self.blueprint.joined.iter().filter_map(|layer| of_layers.iter().find(|(of, _)| of == layer));
        mlx::concatenate(&rows.map(|(_, rows)| rows).collect::<Vec<_>>(), -1).map(Some)
    }

    /// Rows of patches, `[patches, hidden]`, with class tokens and learned positions.
    fn with_positions(&self, patches: &Array, grid: Grid) -> mlx::Result<Array> {
        let (count, hidden) = (grid.count as i32, self.blueprint.hidden as i32);
        let mut x = patches.reshape(&[count, -1, hidden])?;
        if let Some(token) = &self.class_token {
            let token = token.broadcast_to(&[count, 1, hidden])?.astype(x.dtype()?)?;
            x = match self.blueprint.class_token {
                ClassToken::First | ClassToken::Absent => mlx::concatenate(&[&token, &x], 1)?,
                ClassToken::Last => mlx::concatenate(&[&x, &token], 1)?,
            };
        }
        let added = self.positions.as_ref().map(|positions| positions.of(grid, self.blueprint.order));
        if let Some(added) = added.transpose()?.flatten() {
            if added.dim(0)? != x.dim(1)? {
                return Err(mlx::Error::new(format!("{grid:?} has {} positions", added.dim(0)?)));
            }
            x = x + added.expand_dims(&[0])?;
        }
        x.reshape(&[-1, hidden])
    }

    fn without_class_token(&self, x: &Array, grid: Grid) -> mlx::Result<Array> {
        let first = match self.blueprint.class_token {
            ClassToken::Absent => return Ok(x.clone()),
            ClassToken::First => 1,
            ClassToken::Last => 0,
        };
        let (count, hidden) = (grid.count as i32, self.blueprint.hidden as i32);
        let x = x.reshape(&[count, -1, hidden])?;
        let rows = x.dim(1)? - 1;
        x.slice(&[0, first, 0], &[count, first + rows, hidden])?.reshape(&[-1, hidden])
    }

    fn angles(&self, grid: Grid) -> mlx::Result<Option<Angles>> {
        let Some(attention) = self.blueprint.layers.first().map(|layer| layer.attention) else {
            return Ok(None);
        };
        let head_dim = self.blueprint.hidden / attention.heads;
        let rows = (self.blueprint.order, self.blueprint.class_token);
        attention.rotary.map(|rotary| rotary.angles(grid, rows, head_dim)).transpose()
    }

    /// Where rows go, so that those of a window are adjacent.
    fn windows(&self, grid: Grid) -> mlx::Result<Option<Windows>> {
        let (Some(side), PatchOrder::Squares(square)) = (self.blueprint.window, self.blueprint.order) else {
            return Ok(None);
        };
        let squares = grid.merged(square);
        let (of_view, counts) = windows(squares, side);
        let patches = square * square;
        let order: Vec<usize> = (0..grid.count)
            .flat_map(|view| of_view.iter().map(move |square| view * squares.view() + square))
            .collect();
        let mut back = vec![0; order.len()];
        for (at, square) in order.iter().enumerate() {
            if let Some(place) = back.get_mut(*square) {
                *place = at;
            }
        }
        let of_patches =
            order.iter().flat_map(|square| (0..patches).map(move |patch| square * patches + patch));
        let lengths = (0..grid.count).flat_map(|_| counts.iter().map(|count| count * patches));
        Ok(Some(Windows {
            groups: groups(lengths),
            order: indices(of_patches)?,
            back: indices(back.iter().copied())?,
        }))
    }
}

/// The order of rows in which windows are adjacent.
struct Windows {
    groups: Vec<Group>,
    /// Of patches, `[patches]` i32.
    order: Array,
    /// Of merged rows, back to the order of the picture, `[features]` i32.
    back: Array,
}

fn indices(numbers: impl Iterator<Item = usize>) -> mlx::Result<Array> {
    let numbers: Vec<i32> = numbers.map(|number| number as i32).collect();
    Array::from_slice(&numbers, &[numbers.len() as i32])
}
