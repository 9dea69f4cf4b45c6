//! MobileNetV5: a convolution, then rows of blocks. The published tower is one table; a config may bring another.
//!
//! Source: timm `models/mobilenetv5.py`, `models/_efficientnet_builder.py`.

use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::{ConvBlock, ConvBlockKind, ConvTower, Fusion};
use crate::norm::Norm;

/// Blocks of one stage, or a part of it, so many times.
type Run = (usize, &'static [Row]);

/// One block as tables have it: inner channels by what a block reads.
#[derive(Debug, Clone, Copy)]
struct Row {
    stride: usize,
    to: usize,
    kind: RowKind,
}

#[derive(Debug, Clone, Copy)]
enum RowKind {
    Edge { kernel: usize, ratio: f32 },
    Inverted { kernels: [usize; 3], ratio: f32 },
    Attention { heads: usize, head_dim: usize, kernel: usize, key_stride: usize },
}

/// A tower that has a name.
struct Architecture {
    stem: usize,
    stages: &'static [&'static [Run]],
    /// Rows of a picture on a side.
    side: usize,
}

const fn edge(kernel: usize, stride: usize, ratio: f32, to: usize) -> Row {
    Row { stride, to, kind: RowKind::Edge { kernel, ratio } }
}

/// `kernels`: of the depthwise convolutions before, between and behind the linear layers.
const fn inverted(kernels: [usize; 3], stride: usize, ratio: f32, to: usize) -> Row {
    Row { stride, to, kind: RowKind::Inverted { kernels, ratio } }
}

const fn attention(heads: usize, head_dim: usize, key_stride: usize, to: usize) -> Row {
    Row { stride: 1, to, kind: RowKind::Attention { heads, head_dim, kernel: 3, key_stride } }
}

/// The towers that configs name.
const ARCHITECTURES: &[(&str, &Architecture)] = &[("mobilenetv5_300m_enc", &M300)];

/// 300 million parameters, of Gemma 3n.
const M300: Architecture = Architecture {
    stem: 64,
    stages: &[
        &[(1, &[edge(3, 2, 4.0, 128)]), (2, &[edge(3, 1, 4.0, 128)])],
        &[
            (1, &[inverted([3, 5, 0], 2, 6.0, 256)]),
            (2, &[inverted([5, 0, 0], 1, 4.0, 256), inverted([3, 0, 0], 1, 4.0, 256)]),
        ],
        &[
            (1, &[inverted([5, 5, 0], 2, 6.0, 640)]),
            (7, &[inverted([5, 0, 0], 1, 4.0, 640)]),
            (1, &[inverted([0; 3], 1, 1.0, 640)]),
            (14, &[attention(12, 64, 2, 640), inverted([0; 3], 1, 2.0, 640)]),
        ],
        &[
            (1, &[inverted([5, 5, 0], 2, 6.0, 1280)]),
            (19, &[attention(16, 96, 1, 1280), inverted([0; 3], 1, 2.0, 1280)]),
        ],
    ],
    side: 16,
};

/// How often the last two stages' channels fit into those inside of the fusion.
const FUSION_RATIO: f32 = 2.0;

/// The tower that `architecture` names, with what `model_args` change of it.
pub(super) fn read(vision: &Config) -> Result<ConvTower, ConfigError> {
    let named = vision.choice_opt("architecture", ARCHITECTURES)?.unwrap_or(&M300);
    let arguments = vision.section("model_args")?;
    let Some(arguments) = arguments else {
        return Ok(tower(named.stem, &published(named), named.side));
    };
    let stages = match arguments.section_lists("block_args")? {
        Some(stages) => {
            stages.iter().map(|stage| stage.iter().map(row).collect()).collect::<Result<_, _>>()?
        }
        None => published(named),
    };
    let side = arguments.or("msfa_output_resolution", named.side)?;
    Ok(tower(arguments.or("stem_size", named.stem)?, &stages, side))
}

fn published(architecture: &Architecture) -> Vec<Vec<Row>> {
    let rows = |runs: &&[Run]| runs.iter().flat_map(|(times, rows)| rows.repeat(*times)).collect();
    architecture.stages.iter().map(rows).collect()
}

/// One block of `block_args`.
fn row(block: &Config) -> Result<Row, ConfigError> {
    for (field, only) in [("se_ratio", 0.0.into()), ("noskip", false.into()), ("force_in_chs", 0.into())] {
        let only: serde_json::Value = only;
        block.only(field, only)?;
    }
    block.only("act_layer", serde_json::Value::Null)?;
    let ratio = |block: &Config| block.or("exp_ratio", 1.0);
    let kind = match block.choice("block_type", &[("er", 0), ("uir", 1), ("mqa", 2)])? {
        0 => {
            block.only("pw_kernel_size", 1)?;
            RowKind::Edge { kernel: block.or("exp_kernel_size", 3)?, ratio: ratio(block)? }
        }
        1 => {
            let kernels = [("start", 0), ("mid", 3), ("end", 0)];
            let [before, between, behind] =
                kernels.map(|(name, absent)| block.or(&format!("dw_kernel_size_{name}"), absent));
            RowKind::Inverted { kernels: [before?, between?, behind?], ratio: ratio(block)? }
        }
        _ => {
            let head_dim = block.or("key_dim", 64)?;
            block.only("value_dim", head_dim)?;
            RowKind::Attention {
                heads: block.or("num_heads", 8)?,
                head_dim,
                kernel: block.or("dw_kernel_size", 3)?,
                key_stride: block.or("kv_stride", 1)?,
            }
        }
    };
    Ok(Row { stride: block.req("stride")?, to: block.req("out_chs")?, kind })
}

fn tower(stem: usize, stages: &[Vec<Row>], side: usize) -> ConvTower {
    let stem = in_eights(stem as f32);
    let mut from = stem;
    let mut block = |(index, row): (usize, &Row)| {
        let to = in_eights(row.to as f32);
        let inner = |ratio: f32| in_eights(from as f32 * ratio);
        let kind = match row.kind {
            RowKind::Edge { kernel, ratio } => ConvBlockKind::Edge { kernel, inner: inner(ratio) },
            RowKind::Inverted { kernels: [before, between, behind], ratio } => {
                ConvBlockKind::Inverted { before, between, behind, inner: inner(ratio) }
            }
            RowKind::Attention { heads, head_dim, kernel, key_stride } => {
                ConvBlockKind::Attention { heads, head_dim, kernel, key_stride }
            }
        };
        // Only the first block of a stage shrinks the map.
        let stride = if index == 0 { row.stride } else { 1 };
        let block = ConvBlock { from, to, stride, kind };
        from = to;
        block
    };
    let stages: Vec<Vec<ConvBlock>> =
        stages.iter().map(|rows| rows.iter().enumerate().map(&mut block).collect()).collect();
    let fused: Vec<usize> = (stages.len().saturating_sub(2)..stages.len()).collect();
    let channels = fused.iter().filter_map(|stage| Some(stages.get(*stage)?.last()?.to)).sum::<usize>();
    let inner = in_eights(channels as f32 * FUSION_RATIO);
    ConvTower {
        stem,
        stages,
        fusion: Fusion { stages: fused, inner, side },
        act: Activation::GeluTanh,
        norm: Norm::Rms { eps: 1e-6 },
    }
}

/// The nearest multiple of eight channels, or the next where that is less than nine tenths.
fn in_eights(channels: f32) -> usize {
    let nearest = ((channels + 4.0) / 8.0).floor().max(1.0) * 8.0;
    (if nearest < 0.9 * channels { nearest + 8.0 } else { nearest }) as usize
}

#[test]
fn the_published_tower_has_its_blocks() {
    let tower = tower(M300.stem, &published(&M300), M300.side);
    let blocks: Vec<usize> = tower.stages.iter().map(Vec::len).collect();
    assert_eq!(blocks, [3, 5, 37, 39]);
    assert_eq!((tower.pixels(), tower.fusion.inner), (16, 3840));
    assert_eq!(
        tower.stages[2][9].kind,
        ConvBlockKind::Attention { heads: 12, head_dim: 64, kernel: 3, key_stride: 2 }
    );
}

#[test]
fn channels_are_multiples_of_eight() {
    assert_eq!([3.0, 20.0, 19.0, 60.0].map(in_eights), [8, 24, 24, 64]);
}
