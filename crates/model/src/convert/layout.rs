//! How mlx-lm lays out an architecture's checkpoint, where that differs from our names and rules.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::{Manifest, Pattern, WeightRewrite, When};

/// Rows of model type, kind and pattern; the script that writes it says what the kinds are.
const TABLE: &str = include_str!("layouts.tsv");

/// Types whose checkpoints are not written: mlx-lm keeps tensors that we drop or fold into others, packs them in a way of
/// its own, or has two names for one of ours.
pub(super) const NOT_WRITTEN: &[&str] = &[
    "bailing_hybrid",
    "bailing_moe_v3",
    "bitnet",
    "gemma3n",
    "hunyuan",
    "longcat_flash_ngram",
    "prism_hadamard_qwen35",
    "talkie",
];

/// mlx-lm's layout of one architecture.
pub(super) struct Layout {
    /// The steps from published tensors to ours, without those that change numbers of mlx-lm's tensors, too.
    pub(super) rewrites: Vec<WeightRewrite>,
    /// How mlx-lm's tensors become ours. Those with our names come first.
    pub(super) traces: Vec<Trace>,
    floats: Vec<Pattern>,
    kept: Vec<Pattern>,
    kept_at_ends: Vec<Pattern>,
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
}

/// One step from mlx-lm's tensors to ours.
pub(super) struct Step {
    pub(super) rewrite: WeightRewrite,
    pub(super) from: String,
    pub(super) to: Vec<String>,
}

impl Layout {
    /// `ours`: the tensors that the blueprint names.
    pub(super) fn of(model_type: &str, rewrites: &[WeightRewrite], ours: &Manifest) -> Self {
        let patterns = |wanted: &str| rows(model_type, wanted).map(Pattern::from).collect();
        let numbers = ours.0.keys().flat_map(|name| name.split('.')).filter_map(|part| part.parse().ok());
        let numbers: BTreeSet<usize> = numbers.collect();
        let of_pattern = |pattern: &'static str| -> Vec<Trace> {
            match pattern.contains('*') {
                true => numbers.iter().map(|layer| Trace::of(pattern, *layer, rewrites)).collect(),
                false => vec![Trace::of(pattern, 0, rewrites)],
            }
        };
        let mut traces: Vec<Trace> = rows(model_type, "name").flat_map(of_pattern).collect();
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
            traces,
            floats: patterns("float"),
            kept: patterns("kept"),
            kept_at_ends: patterns("kept-ends"),
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
        self.floats.iter().any(|pattern| pattern.matches(path))
    }

    /// Whether mlx-lm leaves the module as it is where no recipe says otherwise. `layers`: of the network.
    pub(super) fn is_kept(&self, path: &str, layers: usize) -> bool {
        let layer = || path.split('.').find_map(|part| part.parse::<usize>().ok());
        let is_at_end = || layer().is_some_and(|layer| layer == 0 || layer + 1 == layers);
        self.kept.iter().any(|pattern| pattern.matches(path))
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

fn rows(model_type: &str, kind: &str) -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter_map(move |line| {
        let (of_type, rest) = line.split_once('\t')?;
        let (of_kind, pattern) = rest.split_once('\t')?;
        (of_type == model_type && of_kind == kind).then_some(pattern)
    })
}

/// Rows whose kind is `shape` and the axes.
fn shapes(model_type: &str) -> Vec<(Pattern, Vec<&'static str>)> {
    let of_row = |line: &'static str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [of_type, kind, pattern] = columns.as_slice() else { return None };
        let axes = kind.strip_prefix("shape ").filter(|_| *of_type == model_type)?;
        Some((Pattern::from(*pattern), axes.split(' ').collect()))
    };
    TABLE.lines().filter_map(of_row).collect()
}

impl Trace {
    /// A step is for this layer alone.
    fn is_of_one_layer(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(&step.rewrite, WeightRewrite::Rename { from, .. } if from.has_number()))
    }

    fn of(pattern: &str, layer: usize, rewrites: &[WeightRewrite]) -> Self {
        let starred = |name: &str| starred(name, layer);
        let (mut steps, mut ours) = (Vec::new(), vec![numbered(pattern, layer)]);
        for rewrite in rewrites {
            for from in ours.clone() {
                let Some(to) = rewrite.renamed(&from) else { continue };
                ours.retain(|name| *name != from);
                ours.extend(to.iter().cloned());
                let (from, to) = (starred(&from), to.iter().map(|name| starred(name)).collect());
                steps.push(Step { rewrite: rewrite.clone(), from, to });
            }
        }
        Self { steps, ours: ours.iter().map(|name| starred(name)).collect() }
    }
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
    /// Numbers change, not only names and places.
    fn changes_numbers(&self) -> bool {
        matches!(
            self,
            Self::Add { .. }
                | Self::Scale { .. }
                | Self::NormalizeInputs { .. }
                | Self::NormalizeOutputs { .. }
                | Self::MoveFactors { .. }
        )
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
            | Self::RoundToBf16 { .. }
            | Self::Drop { .. }
            | Self::DropBeside { .. }
            | Self::DropLayersFrom { .. }
            | Self::Transpose { .. } => None,
        }
    }
}
