//! How mlx-lm lays out an architecture's checkpoint, where that differs from our names and rules.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use mlx::Dtype;
use serde_json::{Map, Value};

use crate::manifest::Manifest;
use crate::pattern::Pattern;
use crate::rewrite::{WeightRewrite, When};
use crate::weights::{LoadError, Weights};

/// Rows of model type, kind and pattern; the script that writes it says what the kinds are.
const TABLE: &str = include_str!("layouts.tsv");

/// mlx-lm's layout of one architecture.
pub(super) struct Layout {
    /// The steps from published tensors to ours, without those that change numbers of mlx-lm's tensors, too.
    pub(super) rewrites: Vec<WeightRewrite>,
    /// How mlx-lm's tensors become ours. Those with our names come first.
    pub(super) traces: Vec<Trace>,
    /// Tensors that no module of ours reads, but mlx-lm's have, under our names.
    pub(super) unread: Vec<Pattern>,
    floats: Vec<Pattern>,
    packed: Vec<Pattern>,
    kept: Vec<Pattern>,
    kept_at_ends: Vec<Pattern>,
    /// With the module that such layers have.
    kept_beside: Vec<(Pattern, Pattern)>,
    eight_bits: Vec<Pattern>,
    own_dtype: Vec<Pattern>,
    /// Axes of a tensor: `1`, and `n` for that of its numbers.
    shapes: Vec<(Pattern, Vec<&'static str>)>,
}

/// What the steps make of one of mlx-lm's tensors in one layer. Further numbers in names are `*`.
pub(super) struct Trace {
    /// The steps for it, in order.
    pub(super) steps: Vec<Step>,
    /// What it becomes.
    pub(super) ours: Vec<String>,
    /// A step that drops it, though mlx-lm has it.
    unread: Option<Pattern>,
}

/// One step from mlx-lm's tensors to ours.
pub(super) struct Step {
    pub(super) rewrite: WeightRewrite,
    pub(super) from: String,
    pub(super) to: Vec<String>,
}

impl Layout {
    /// `ours`: the tensors that the blueprint names.
    pub(super) fn of(config: &Map<String, Value>, rewrites: &[WeightRewrite], ours: &Manifest) -> Self {
        let model_type = type_with_rows(config);
        let patterns = |wanted: &str| rows(model_type, wanted).map(Pattern::from).collect();
        let numbers = ours.0.keys().flat_map(|name| name.split('.')).filter_map(|part| part.parse().ok());
        let numbers: BTreeSet<usize> = numbers.collect();
        let of_pattern = |(of_layers, pattern): (OfLayers, &'static str)| -> Vec<Trace> {
            let of_layer = |layer| Trace::of(pattern, of_layers, layer, rewrites);
            match pattern.contains('*') {
                true => numbers.iter().map(|layer| of_layer(*layer)).collect(),
                false => vec![of_layer(0)],
            }
        };
        let of_all = rows(model_type, "name").map(|pattern| (OfLayers::All, pattern));
        let of_some = rows(model_type, "some").map(|pattern| (OfLayers::Some, pattern));
        let mut traces: Vec<Trace> = of_all.chain(of_some).flat_map(of_pattern).collect();
        // Where layers differ, names of one layer come first, and joined tensors before those that have only some of
        // their parts.
        traces.sort_by_key(|trace| {
            (!trace.is_of_one_layer(), !trace.steps.is_empty(), Reverse(trace.ours.len()))
        });
        let is_for_converted = |rewrite: &&WeightRewrite| {
            let in_trace = |trace: &Trace| trace.steps.iter().any(|step| step.rewrite == **rewrite);
            rewrite.changes_numbers() && traces.iter().any(in_trace)
        };
        let kept = rewrites.iter().filter(|rewrite| !is_for_converted(rewrite)).cloned().collect();
        for trace in &mut traces {
            trace.steps.retain(|step| !step.rewrite.changes_numbers());
        }
        Self {
            rewrites: kept,
            unread: traces.iter().filter_map(|trace| trace.unread.clone()).collect(),
            traces,
            floats: patterns("float"),
            packed: patterns("packed"),
            kept: patterns("kept"),
            kept_at_ends: patterns("kept-ends"),
            kept_beside: kept_beside(model_type),
            eight_bits: patterns("8-bit"),
            own_dtype: patterns("own-dtype"),
            shapes: shapes(model_type),
        }
    }

    /// The shape that mlx-lm gives a tensor of so many numbers, where it has axes of one.
    pub(super) fn shape_of(&self, name: &str, size: usize) -> Option<Vec<i32>> {
        let (_, axes) = self.shapes.iter().find(|(pattern, _)| pattern.matches(name))?;
        Some(axes.iter().map(|axis| if *axis == "n" { size as i32 } else { 1 }).collect())
    }

    /// Whether mlx-lm cannot load the module packed.
    pub(super) fn is_float(&self, path: &str) -> bool {
        self.floats.iter().chain(&self.packed).any(|pattern| pattern.matches(path))
    }

    /// The tensors of modules that mlx-lm packs in a way of its own, as they are.
    pub(super) fn packed_tensors(&self, weights: &Weights) -> Result<Weights, LoadError> {
        let is_packed = |name: &&String| {
            let (path, part) = name.rsplit_once('.').unwrap_or_default();
            part != "bias" && self.packed.iter().any(|pattern| pattern.matches(path))
        };
        let mut tensors = Weights::new();
        for name in weights.keys().filter(is_packed) {
            let tensor = &weights[name];
            if name.ends_with(".weight") && tensor.dtype()? != Dtype::U8 {
                let problem = "is not packed, and mlx-lm loads it packed alone".to_owned();
                return Err(LoadError::Format { path: name.clone(), problem });
            }
            tensors.insert(name.clone(), tensor.clone());
        }
        Ok(tensors)
    }

    /// Whether mlx-lm leaves the module as it is where no recipe says otherwise. `layers`: of the network; `has`: whether
    /// the checkpoint has another module.
    pub(super) fn is_kept(&self, path: &str, layers: usize, has: impl Fn(&str) -> bool) -> bool {
        let layer = || path.split('.').find_map(|part| part.parse::<usize>().ok());
        let is_at_end = || layer().is_some_and(|layer| layer == 0 || layer + 1 == layers);
        let is_beside = |(pattern, other): &(Pattern, Pattern)| {
            pattern.captures(path).is_some_and(|captures| has(&other.fill(&captures)))
        };
        self.kept.iter().any(|pattern| pattern.matches(path))
            || self.kept_beside.iter().any(is_beside)
            || (self.kept_at_ends.iter().any(|pattern| pattern.matches(path)) && is_at_end())
    }

    /// Whether the module has 8 bits in a model with fewer.
    pub(super) fn has_eight_bits(&self, path: &str) -> bool {
        self.eight_bits.iter().any(|pattern| pattern.matches(path))
    }

    /// Whether the tensor keeps its type.
    pub(super) fn keeps_dtype(&self, name: &str) -> bool {
        self.own_dtype.iter().any(|pattern| pattern.matches(name))
    }
}

/// The type whose rows are a config's: its own, or that of its architecture.
fn type_with_rows(config: &Map<String, Value>) -> &str {
    let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let architectures = config.get("architectures").and_then(Value::as_array);
    let mut architectures = architectures.into_iter().flatten().filter_map(Value::as_str);
    architectures
        .find_map(|name| rows(model_type, &format!("architecture {name}")).next())
        .unwrap_or(model_type)
}

fn rows(model_type: &str, kind: &str) -> impl Iterator<Item = &'static str> {
    rows_with(model_type, kind).filter(|(rest, _)| rest.is_empty()).map(|(_, pattern)| pattern)
}

/// Rows whose kind is `shape` and the axes.
fn shapes(model_type: &str) -> Vec<(Pattern, Vec<&'static str>)> {
    let rows = rows_with(model_type, "shape ");
    rows.map(|(axes, pattern)| (Pattern::from(pattern), axes.split(' ').collect())).collect()
}

/// Rows whose kind is `kept-beside` and another module.
fn kept_beside(model_type: &str) -> Vec<(Pattern, Pattern)> {
    let rows = rows_with(model_type, "kept-beside ");
    rows.map(|(other, pattern)| (Pattern::from(pattern), Pattern::from(other))).collect()
}

/// Rows whose kind begins so: the rest of it, and the pattern.
fn rows_with(model_type: &str, kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.lines().filter_map(move |line| {
        let (of_type, rest) = line.split_once('\t')?;
        let (of_kind, pattern) = rest.split_once('\t')?;
        Some((of_kind.strip_prefix(kind).filter(|_| of_type == model_type)?, pattern))
    })
}

impl Trace {
    /// A step is for this layer alone.
    fn is_of_one_layer(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(&step.rewrite, WeightRewrite::Rename { from, .. } if from.has_number()))
    }

    fn of(pattern: &str, of_layers: OfLayers, layer: usize, rewrites: &[WeightRewrite]) -> Self {
        // Names with one number are those of this layer alone.
        let has_further = pattern.matches('*').count() > 1;
        let starred = |name: &str| if has_further { starred(name, layer) } else { name.to_owned() };
        let (mut steps, mut ours, mut unread) = (Vec::new(), vec![numbered(pattern, layer)], None);
        for rewrite in rewrites {
            if let (OfLayers::All, WeightRewrite::Drop { tensors }) = (of_layers, rewrite)
                && ours.iter().any(|name| tensors.matches(name))
            {
                unread = Some(tensors.clone());
                break;
            }
            for from in ours.clone() {
                let Some(to) = rewrite.renamed(&from) else { continue };
                ours.retain(|name| *name != from);
                ours.extend(to.iter().cloned());
                let (from, to) = (starred(&from), to.iter().map(|name| starred(name)).collect());
                steps.push(Step { rewrite: rewrite.clone(), from, to });
            }
        }
        Self { steps, ours: ours.iter().map(|name| starred(name)).collect(), unread }
    }
}

/// Which layers have a tensor.
#[derive(Clone, Copy)]
enum OfLayers {
    All,
    Some,
}

/// A name of one layer, the first number in it. Further ones are 0.
fn numbered(pattern: &str, layer: usize) -> String {
    pattern.replacen('*', &layer.to_string(), 1).replace('*', "0")
}

/// The pattern of a name of one layer.
fn starred(name: &str, layer: usize) -> String {
    let mut is_layer = layer == 0;
    let segment = |segment| match segment {
        "0" if std::mem::take(&mut is_layer) => "0",
        "0" => "*",
        other => other,
    };
    name.split('.').map(segment).collect::<Vec<_>>().join(".")
}

impl WeightRewrite {
    /// Numbers change, not only names and places, and mlx-lm's tensors have those from before.
    fn changes_numbers(&self) -> bool {
        matches!(self, Self::Add { .. } | Self::Scale { .. } | Self::MoveFactors { .. })
    }

    /// What a tensor of a converted checkpoint is called after the step; `None` if the step is not for it.
    fn renamed(&self, name: &str) -> Option<Vec<String>> {
        let same = |tensors: &Pattern| tensors.matches(name).then(|| vec![name.to_owned()]);
        match self {
            Self::Rename { from, to } | Self::Unstack { from, to, .. } => {
                Some(vec![to.fill(&from.captures(name)?)])
            }
            Self::StackExperts { from, to, .. } => Some(vec![to.fill(&from.captures(name)?)]),
            Self::Join { from, to } => {
                let captures = from.iter().find_map(|from| from.captures(name))?;
                Some(vec![to.fill(&captures)])
            }
            Self::Split { from, to } => {
                let captures = from.captures(name)?;
                Some(to.iter().map(|(to, _)| to.fill(&captures)).collect())
            }
            Self::Deinterleave { from, to } => {
                let captures = from.captures(name)?;
                Some(to.iter().map(|to| to.fill(&captures)).collect())
            }
            Self::SplitLatent { from, .. } => {
                let (parent, _) =
                    name.strip_suffix(".weight")?.rsplit_once('.').filter(|_| from.matches(name))?;
                Some(["embed_q", "unembed_out"].map(|part| format!("{parent}.{part}.weight")).into())
            }
            Self::TakeRows { tensors, .. }
            | Self::TakeInputs { tensors, .. }
            | Self::Transposed { tensors }
            | Self::Reshape { tensors, .. }
            | Self::NormalizeInputs { tensors }
            | Self::NormalizeOutputs { tensors } => same(tensors),
            Self::MoveFactors { from, to } => same(from).or(same(to)),
            Self::Add { tensors, when, .. } | Self::Scale { tensors, when, .. } => {
                same(tensors).filter(|_| *when == When::Always)
            }
            // Converted checkpoints have none of these, or have them as we do.
            Self::GateShares { .. }
            | Self::Share { .. }
            | Self::ZeroBias { .. }
            | Self::RoundToBf16 { .. }
            | Self::Drop { .. }
            | Self::Keep { .. }
            | Self::DropBeside { .. }
            | Self::DropLayersFrom { .. }
            | Self::Transpose { .. } => None,
        }
    }
}
