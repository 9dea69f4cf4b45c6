//! The shared inputs of one forward pass: positions, lengths, and each cache group's metadata.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use mlx::Array;
use omnibus_kv::KvFormat;

use super::attention::{AttentionMetadata, AttentionReads};
use super::axes::AxisPositions;
use super::items::{Items, Numbers};
use super::kv_path::{AttentionPath, StatePath};
use super::row_split::RowSplit;
use super::rows::indices;
use super::state::{DeviceRuns, StateMetadata};
use crate::batch::{Batch, CrossRows, FeatureRows, UnattendedRows};
use crate::kv_cache::{KvCache, poisoned};
use crate::rope::RotaryAxes;
use crate::take_rows::take_rows;

/// One pass's shared inputs.
pub(crate) struct ForwardContext {
    /// `[T]` i32; made when first needed.
    positions: OnceCell<Array>,
    pub(crate) lengths: SequenceLengths,
    /// How attention reaches keys and values.
    path: AttentionPath,
    /// At least one.
    pub(crate) logits_at: Option<LogitRows>,
    /// One for each cache group.
    pub(crate) groups: Vec<GroupMetadata>,
    /// The pass's tokens, `[T]` i32.
    pub(crate) tokens: Array,
    /// Features in the place of tokens.
    pub(crate) features: Option<PlacedFeatures>,
    /// Positions in time, height and width, of models whose rows rotate by these.
    pub(crate) axes: Option<AxisPositions>,
    /// Rows that attend to pictures; `None` if there are none.
    pub(crate) cross: Option<Crossing>,
    /// Values of the pass's first layer, where later layers mix them into theirs.
    pub(crate) first_values: OnceCell<Array>,
    /// What indexers of the pass chose, by the layer's index in the blueprint, where later layers read the same keys.
    pub(crate) choices: RefCell<BTreeMap<usize, Vec<KeyChoice>>>,
    /// 0 for rows that no row attends to, 1 for others, `[T, 1]`; `None` if there are none.
    pub(crate) attended: Option<Array>,
}

/// See [`ForwardContext::attended`].
fn attended(unattended: &[UnattendedRows], positions: &[i32]) -> mlx::Result<Option<Array>> {
    if unattended.is_empty() {
        return Ok(None);
    }
    let mut mask = vec![1f32; positions.len()];
    for UnattendedRows { rows, from } in unattended {
        let of_rows = mask.iter_mut().zip(positions).skip(rows.start).take(rows.len());
        of_rows.filter(|(_, at)| **at as usize >= *from).for_each(|(mask, _)| *mask = 0.0);
    }
    Array::from_slice(&mask, &[mask.len() as i32, 1]).map(Some)
}

/// What an indexer chose for the rows of one gather, `true` where a row reads a key.
#[derive(Clone)]
pub(crate) struct KeyChoice {
    /// `[n, 1, rows, keys]`
    pub(crate) chosen: Array,
    /// Keys that later indexers may choose from, if they are fewer than all.
    pub(crate) candidates: Option<Array>,
}

/// Position of each row, and the length that its sequence is rotated for: the prompt's length for prompt tokens, then
/// one more with each token. Neither chunks nor other sequences change a rotation.
pub(crate) struct SequenceLengths(pub(crate) Vec<(usize, usize)>);

/// Features in the place of tokens.
pub(crate) struct PlacedFeatures {
    /// `[n]` i32.
    pub(crate) rows: Array,
    /// `[n, hidden]`
    pub(crate) features: Array,
    /// Of each of the first layers, `[n, hidden]`.
    pub(crate) deepstack: Vec<Array>,
}

/// Rows that attend to pictures.
pub(crate) struct Crossing {
    /// In order, disjoint.
    pub(crate) spans: Vec<CrossRows>,
    /// 1 for each row of a span, 0 for others, `[T, 1]`.
    pub(crate) mask: Array,
}

impl Crossing {
    fn new(spans: &[CrossRows], rows: usize) -> mlx::Result<Self> {
        let mut mask = vec![0f32; rows];
        let mut next = 0;
        for CrossRows { rows: of, .. } in spans {
            if of.start < next || of.end > rows || of.is_empty() {
                return Err(mlx::Error::new("rows that attend to pictures come in order"));
            }
            mask.iter_mut().skip(of.start).take(of.len()).for_each(|row| *row = 1.0);
            next = of.end;
        }
        Ok(Self { spans: spans.to_vec(), mask: Array::from_slice(&mask, &[rows as i32, 1])? })
    }
}

/// Rows that need logits.
pub(crate) enum LogitRows {
    /// The first ones of the pass, this many.
    First(i32),
    /// `[n]` i32.
    At(Array),
}

/// Where the layers of one group read and write.
pub(crate) enum GroupMetadata {
    /// Keys and values of many positions.
    Attention(AttentionMetadata),
    /// One state per sequence.
    State(StateMetadata),
}

impl ForwardContext {
    /// `axes`: by how many positions rows rotate; `path`, `state_path`: how attention reaches its keys and values, and
    /// recurrences their states.
    pub(crate) fn new(
        batch: &Batch,
        cache: &KvCache,
        axes: RotaryAxes,
        (path, state_path): (AttentionPath, StatePath),
    ) -> mlx::Result<Self> {
        let rows = batch.tokens.shape().first().copied().unwrap_or(0) as usize;
        let lengths = SequenceLengths::of(batch, rows)?;
        let positions: Vec<i32> = lengths.0.iter().map(|(position, _)| *position as i32).collect();
        let prefix = cache.storage.unquantized_prefix.map(|prefix| prefix.tokens);
        let multimodal = batch.multimodal.as_ref();
        let axes = match axes {
            RotaryAxes::One => None,
            RotaryAxes::Three => {
                let given = multimodal.and_then(|rows| rows.positions.as_deref());
                Some(AxisPositions::new(given, &positions)?)
            }
        };
        let spans = multimodal.map_or(&[][..], |rows| &rows.bidirectional);
        let unattended = multimodal.map_or(&[][..], |rows| &rows.unattended);
        let split = RowSplit::new(&batch.segments, prefix, (rows, spans))?.with_unattended(unattended);
        let attended = attended(unattended, &positions)?;
        let groups = cache.groups.iter().enumerate().map(|(group, of)| match of.spec.kind.is_state() {
            true => Ok(GroupMetadata::State(StateMetadata::new(batch, rows, group, cache, state_path)?)),
            false => {
                let positions = (positions.as_slice(), axes.as_ref());
                Ok(GroupMetadata::Attention(AttentionMetadata::new(&split, positions, group, cache, path)?))
            }
        });
        let groups = groups.collect::<mlx::Result<_>>()?;
        let logits_at = LogitRows::new(&batch.logits_at, path)?;
        let (first_values, choices) = (OnceCell::new(), RefCell::default());
        let tokens = batch.tokens.clone();
        let features = multimodal.and_then(|rows| rows.features.as_ref());
        let features = features.map(|features| PlacedFeatures::new(features, rows)).transpose()?;
        let cross = multimodal.map(|of| of.cross.as_slice()).filter(|cross| !cross.is_empty());
        let cross = cross.map(|cross| Crossing::new(cross, rows)).transpose()?;
        let positions = OnceCell::new();
        Ok(Self {
            positions,
            logits_at,
            groups,
            lengths,
            path,
            tokens,
            features,
            axes,
            cross,
            first_values,
            choices,
            attended,
        })
    }

    /// These rows of the pass; `None` if there are none.
    pub(crate) fn rows(&self, rows: &[usize]) -> mlx::Result<Option<LogitRows>> {
        LogitRows::new(rows, self.path)
    }

    /// Position of each row, `[T]` i32.
    pub(crate) fn positions(&self) -> mlx::Result<&Array> {
        if let Some(made) = self.positions.get() {
            return Ok(made);
        }
        // Items have them on the device already, where a later step may have other ones in the same place.
        let items = self.groups.iter().find_map(GroupMetadata::items);
        if let Some(items) = items {
            let made = items.positions.slice(&[0], &[items.rows])?;
            return Ok(self.positions.get_or_init(|| made));
        }
        let positions: Vec<i32> = self.lengths.0.iter().map(|(position, _)| *position as i32).collect();
        let made = indices(&positions)?;
        Ok(self.positions.get_or_init(|| made))
    }

    /// Of pool `index` and that of its unquantized prefix, those that rows are written to or read from: the pool's index,
    /// how it stores keys and values, and the metadata of its group.
    pub(crate) fn attention_pools(
        &self,
        cache: &KvCache,
        index: usize,
    ) -> mlx::Result<Vec<(usize, KvFormat, &AttentionMetadata)>> {
        let mut used = Vec::with_capacity(1);
        for at in cache.with_prefix(index) {
            let group = cache.pools.get(at).ok_or_else(poisoned)?.group;
            match (self.groups.get(group), cache.groups.get(group)) {
                (Some(GroupMetadata::Attention(metadata)), Some(_)) if metadata.is_idle => {}
                (Some(GroupMetadata::Attention(metadata)), Some(group)) => {
                    used.push((at, group.spec.format, metadata));
                }
                _ => return Err(poisoned()),
            }
        }
        Ok(used)
    }

    /// What the indexer of a layer chose, by gathers.
    pub(crate) fn choices_of(&self, layer: usize) -> mlx::Result<Vec<KeyChoice>> {
        self.choices.borrow().get(&layer).cloned().ok_or_else(|| mlx::Error::new("a choice of keys"))
    }

    /// What differs between two decode steps of the same [shape](Self::shapes_of_decode) beside their tokens, one for each
    /// group; `None` for a pass with chunks, and where MLX's operations reach a cache.
    pub(crate) fn numbers_of_decode(&self) -> Option<Vec<&Numbers>> {
        self.groups.iter().map(GroupMetadata::numbers_of_decode).collect()
    }

    /// Whether the pass may be computed twice with the same result: it replaces no state that it starts from.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.groups.iter().all(|group| match group {
            GroupMetadata::Attention(_) => true,
            GroupMetadata::State(metadata) => metadata.device_runs().is_none_or(|runs| !runs.replaces()),
        })
    }

    /// The sizes of each group's reads.
    pub(crate) fn shapes_of_decode(&self) -> Vec<[i32; 3]> {
        let of = |group: &GroupMetadata| match group {
            GroupMetadata::Attention(_) => group.items().map(Items::shape),
            GroupMetadata::State(metadata) => metadata.device_runs().map(DeviceRuns::shape),
        };
        self.groups.iter().filter_map(of).collect()
    }

    /// Where the states of pool `index` are.
    pub(crate) fn state_of(&self, cache: &KvCache, index: usize) -> mlx::Result<&StateMetadata> {
        match cache.pools.get(index).and_then(|pool| self.groups.get(pool.group)) {
            Some(GroupMetadata::State(metadata)) => Ok(metadata),
            Some(GroupMetadata::Attention(_)) | None => Err(poisoned()),
        }
    }
}

impl GroupMetadata {
    fn numbers_of_decode(&self) -> Option<&Numbers> {
        match self {
            Self::Attention(_) => self.items()?.numbers_of_decode(),
            Self::State(metadata) => metadata.device_runs()?.numbers_of_decode(),
        }
    }

    fn items(&self) -> Option<&Items> {
        match self {
            Self::Attention(AttentionMetadata { reads: AttentionReads::Items(items), .. }) => Some(items),
            Self::Attention(_) | Self::State(_) => None,
        }
    }
}

impl PlacedFeatures {
    /// `rows`: of the pass.
    fn new(placed: &FeatureRows, rows: usize) -> mlx::Result<Self> {
        let count = placed.rows.len();
        let fits =
            |features: &Array| features.ndim() == 2 && features.shape().first() == Some(&(count as i32));
        let mut all = std::iter::once(&placed.features).chain(&placed.deepstack);
        if count == 0 || placed.rows.iter().any(|row| *row >= rows) || !all.all(fits) {
            return Err(mlx::Error::new("one feature for each of some rows of the pass"));
        }
        let numbers: Vec<i32> = placed.rows.iter().map(|row| *row as i32).collect();
        let (features, deepstack) = (placed.features.clone(), placed.deepstack.clone());
        Ok(Self { rows: indices(&numbers)?, features, deepstack })
    }
}

impl LogitRows {
    fn new(rows: &[usize], path: AttentionPath) -> mlx::Result<Option<Self>> {
        let numbers: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        if rows.iter().copied().eq(0..rows.len()) {
            return Ok(Some(Self::First(rows.len() as i32)));
        }
        Ok(Some(Self::At(match path {
            AttentionPath::Items => mlx::gpu::upload(&numbers)?.slice(&[0], &[rows.len() as i32])?,
            AttentionPath::Segments | AttentionPath::Gather => indices(&numbers)?,
        })))
    }

    /// These rows of `x`, `[T, width]`.
    pub(crate) fn of(&self, x: &Array) -> mlx::Result<Array> {
        match self {
            Self::First(rows) => match x.dims()? {
                [all, _] if all == *rows => Ok(x.clone()),
                [_, width] => x.slice(&[0, 0], &[*rows, width]),
            },
            Self::At(rows) => take_rows(x, rows),
        }
    }

    /// These rows of `x`, `[T, width]`, in memory of their own.
    pub(crate) fn copied(&self, x: &Array) -> mlx::Result<Array> {
        match self {
            Self::First(rows) => take_rows(x, &indices(&(0..*rows).collect::<Vec<_>>())?),
            Self::At(rows) => take_rows(x, rows),
        }
    }
}

impl SequenceLengths {
    fn of(batch: &Batch, rows: usize) -> mlx::Result<Self> {
        let mut lengths: Vec<(usize, usize)> = vec![(0, 1); rows];
        for segment in &batch.segments {
            let range = lengths.get_mut(segment.first..segment.first + segment.len);
            let range = range.ok_or_else(|| mlx::Error::new("segments lie within the batch"))?;
            for (row, length) in range.iter_mut().enumerate() {
                let position = segment.context + row;
                *length = (position, segment.prompt.max(position + 1));
            }
        }
        Ok(Self(lengths))
    }
}
