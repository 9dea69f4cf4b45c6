//! How mlx-lm lays out an architecture's checkpoint, where that differs from our names and rules.

use crate::{Pattern, WeightRewrite, When};

/// Rows of model type, kind and pattern; the script that writes it says what the kinds are.
const TABLE: &str = include_str!("layouts.tsv");

/// Types whose checkpoints are not written: mlx-lm names or shapes their tensors by rules that steps backwards do not
/// know, as those of some layers only.
pub(super) const NOT_WRITTEN: &[&str] = &[
    "afm7",
    "bailing_hybrid",
    "bailing_moe_v3",
    "bitnet",
    "gemma3n",
    "hunyuan",
    "kimi_k3",
    "kimi_linear",
    "longcat_flash_ngram",
    "rwkv7",
    "talkie",
];

/// mlx-lm's layout of one architecture.
pub(super) struct Layout {
    /// The steps from published tensors to ours, without those that change numbers of mlx-lm's tensors, too.
    pub(super) rewrites: Vec<WeightRewrite>,
    /// How mlx-lm's tensors become ours. Those with our names come first.
    pub(super) traces: Vec<Trace>,
    floats: Vec<Pattern>,
    eight_bits: Vec<Pattern>,
    own_dtype: Vec<Pattern>,
}

/// What the steps make of one of mlx-lm's tensors. Numbers in names are `*`.
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
    pub(super) fn of(model_type: &str, rewrites: &[WeightRewrite]) -> Self {
        let patterns = |wanted: &str| rows(model_type, wanted).map(Pattern::from).collect();
        let mut traces: Vec<Trace> = rows(model_type, "name").map(|name| Trace::of(name, rewrites)).collect();
        traces.sort_by_key(|trace| !trace.steps.is_empty());
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
            eight_bits: patterns("8-bit"),
            own_dtype: patterns("own-dtype"),
        }
    }

    /// Whether mlx-lm cannot load the module packed.
    pub(super) fn is_float(&self, path: &str) -> bool {
        self.floats.iter().any(|pattern| pattern.matches(path))
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

impl Trace {
    fn of(name: &str, rewrites: &[WeightRewrite]) -> Self {
        let (mut steps, mut ours) = (Vec::new(), vec![numbered(name)]);
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

/// A name of layer 0.
fn numbered(pattern: &str) -> String {
    pattern.replace('*', "0")
}

/// The pattern of a name of layer 0.
fn starred(name: &str) -> String {
    let segment = |segment| if segment == "0" { "*" } else { segment };
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
            | Self::Reshape { .. }
            | Self::Transpose { .. } => None,
        }
    }
}
