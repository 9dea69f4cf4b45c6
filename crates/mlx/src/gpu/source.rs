//! The texts of the kernels, and how they are put together for a compiler.

use crate::device::Backend;
use crate::dtype::Dtype;

/// Which spelling of the common dialect a text uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// CUDA C++, for NVRTC.
    Cuda,
    /// Metal's language.
    Metal,
}

impl Dialect {
    /// What a backend compiles; `None` for the CPU.
    pub fn of(backend: Backend) -> Option<Self> {
        match backend {
            Backend::Cuda => Some(Self::Cuda),
            Backend::Metal => Some(Self::Metal),
            Backend::Cpu => None,
        }
    }

    /// What texts call a type.
    pub fn type_name(self, dtype: Dtype) -> &'static str {
        match (self, dtype) {
            (Self::Cuda, Dtype::Bf16) => "__nv_bfloat16",
            (Self::Cuda, Dtype::F16) => "__half",
            (Self::Metal, Dtype::Bf16) => "bfloat16_t",
            (Self::Metal, Dtype::F16) => "float16_t",
            (_, Dtype::F32) => "float",
            (_, Dtype::U32) => "uint32_t",
            (_, Dtype::U8) => "uint8_t",
            _ => "int32_t",
        }
    }
}

/// A kernel: its interface and its text.
#[derive(Debug)]
pub struct Kernel {
    /// Its name, an identifier.
    pub name: &'static str,
    /// Names of the inputs, in order.
    pub inputs: &'static [&'static str],
    /// Names of the outputs, in order.
    pub outputs: &'static [&'static str],
    body: &'static str,
    needs: Needs,
    /// When the kernel behind it may begin in a graph.
    pub(super) next: NextKernel,
}

/// When the kernel behind another may begin in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextKernel {
    /// At once: it waits by itself before it reads.
    BeginsEarly,
    /// When the other has ended.
    BeginsBehind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Dialect,
    /// `cuda_mma.h`: CUDA alone.
    TensorCores,
    /// `cuda_wgmma.h`, too: compute capability 9.0 alone.
    Warpgroups,
    /// `cuda_peers.h`: CUDA alone.
    Peers,
    /// `metal_matrix.h`: Metal alone.
    SimdgroupMatrices,
}

/// A text as MLX's custom kernels take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What goes in front of the function.
    pub header: String,
    /// The function's body.
    pub body: String,
}

/// Inputs of the attention kernels over rows.
const ATTENTION: &[&str] = &["q", "kpool", "vpool", "items", "table", "counter", "sinks", "other"];

macro_rules! kernel {
    ($name:literal, $inputs:expr, $outputs:expr, $needs:ident) => {
        Kernel {
            name: $name,
            inputs: $inputs,
            outputs: $outputs,
            body: include_str!(concat!("kernels/", $name, ".h")),
            needs: Needs::$needs,
            next: NextKernel::BeginsEarly,
        }
    };
}

pub(super) static UPLOAD: Kernel = kernel!("upload", &["x"], &["y"], Dialect);
pub(super) static TAKE_NUMBERS: Kernel = kernel!("take_numbers", &["x", "at"], &["y"], Dialect);
pub(super) static TAKE_COLUMNS: Kernel = kernel!("take_columns", &["x", "at"], &["y"], Dialect);
pub(super) static JOIN_ROWS: Kernel = kernel!("join_rows", &["a", "b"], &["y"], Dialect);
/// Groups of attention that begin while the product before this one still runs crowd the multiprocessors that it leaves
/// first: 16 streams of 8,192 tokens took 15.1 ms in place of 11.7.
pub(super) static QK_ROPE_WRITE: Kernel = Kernel {
    next: NextKernel::BeginsBehind,
    ..kernel!(
        "qk_rope_write",
        &["qkv", "qw", "kw", "freq", "axis", "pos", "slot", "kpool", "vpool"],
        &["q", "counter"],
        Dialect
    )
};
pub(super) static ATTN_ROWS: Kernel = kernel!("attn_rows", ATTENTION, &["out", "part"], Dialect);
pub(super) static ATTN_REDUCE: Kernel =
    kernel!("attn_reduce", &["part", "items", "sinks"], &["out"], Dialect);
pub(super) static ATTN_MMA: Kernel = kernel!(
    "attn_mma",
    &["q", "kpool", "vpool", "items", "table", "counter", "sinks"],
    &["out", "part"],
    TensorCores
);
pub(super) static ATTN_CHUNK_MMA: Kernel = kernel!(
    "attn_chunk_mma",
    &["q", "kpool", "vpool", "items", "table", "sinks", "other"],
    &["out"],
    TensorCores
);
pub(super) static ATTN_CHUNK_WIDE: Kernel = kernel!(
    "attn_chunk_wide",
    &["q", "kpool", "vpool", "items", "table", "sinks", "other"],
    &["out"],
    Warpgroups
);
pub(super) static ATTN_CHUNK_MATRIX: Kernel = kernel!(
    "attn_chunk_matrix",
    &["q", "kpool", "vpool", "items", "table", "sinks", "other"],
    &["out"],
    SimdgroupMatrices
);
pub(super) static LATENT_WRITE: Kernel = kernel!(
    "latent_write",
    &["q", "kv", "w", "freq", "pos", "slot", "lpool", "kpool"],
    &["turned", "counter"],
    Dialect
);
pub(super) static LATENT_GATHER: Kernel =
    kernel!("latent_gather", &["lpool", "kpool", "table", "turned"], &["latents", "key"], Dialect);
pub(super) static ATTN_LATENT: Kernel = kernel!(
    "attn_latent",
    &["q", "turned", "lpool", "kpool", "items", "table", "counter"],
    &["out", "part"],
    Dialect
);
pub(super) static ATTN_LATENT_MMA: Kernel = kernel!(
    "attn_latent_mma",
    &["q", "turned", "lpool", "kpool", "items", "table", "counter"],
    &["out", "part"],
    TensorCores
);
pub(super) static CAUSAL_CONV: Kernel =
    kernel!("causal_conv", &["x", "weight", "bias", "runs", "pool"], &["y"], Dialect);
pub(super) static RECURRENCE: Kernel = kernel!(
    "recurrence",
    &["mixed", "steps", "writes", "a_log", "dt_bias", "skip", "runs", "pool"],
    &["y"],
    Dialect
);
pub(super) static SELECTIVE_SCAN: Kernel = kernel!(
    "selective_scan",
    &["x", "dt", "writes", "reads", "rate", "skip", "runs", "pool"],
    &["y"],
    Dialect
);
pub(super) static DECAYS: Kernel = kernel!("decays", &["x", "a_log", "bias"], &["y"], Dialect);
pub(super) static GATED_HEADS: Kernel = kernel!("gated_heads", &["x", "gates", "w"], &["y"], Dialect);
pub(super) static EMBED: Kernel = kernel!("embed", &["tokens", "table", "ss", "sb"], &["y"], Dialect);
pub(super) static ADD_NORM: Kernel = kernel!("add_norm", &["x", "r", "w", "xw"], &["sum", "y"], Dialect);
pub(super) static ADD_NORMED: Kernel = kernel!("add_normed", &["x", "r", "xw"], &["sum"], Dialect);
pub(super) static RMS_NORM: Kernel = kernel!("rms_norm", &["x", "w"], &["y"], Dialect);
pub(super) static LAYER_NORM: Kernel = kernel!("layer_norm", &["x", "w", "b"], &["y"], Dialect);
pub(super) static NORM_COLUMNS: Kernel = kernel!("norm_columns", &["x", "qw", "kw"], &["y"], Dialect);
pub(super) static ADD_CHOSEN: Kernel = kernel!("add_chosen", &["x", "chosen", "bias"], &["y"], Dialect);
pub(super) static ADD_TERM: Kernel = kernel!("add_term", &["r", "x", "z"], &["y"], Dialect);
pub(super) static NARROW: Kernel = kernel!("narrow", &["x", "w"], &["y"], Dialect);
pub(super) static GATED: Kernel = kernel!("gated", &["gate", "up"], &["y"], Dialect);
pub(super) static HEAD_GATE: Kernel = kernel!("head_gate", &["gate", "x"], &["y"], Dialect);
pub(super) static XIELU: Kernel =
    kernel!("xielu", &["x", "alpha_p", "alpha_n", "beta", "eps"], &["y"], Dialect);

/// Inputs of a product with weights.
const WEIGHTS: &[&str] = &["x", "w", "ss", "sb", "bias"];
pub(super) static WMM: Kernel = kernel!("wmm", WEIGHTS, &["y"], TensorCores);
pub(super) static WMM_FLOW: Kernel = kernel!("wmm_flow", WEIGHTS, &["y"], Warpgroups);
pub(super) static WMM_EXPERT: Kernel =
    kernel!("wmm_expert", &["x", "w", "ss", "sb", "experts"], &["y"], TensorCores);
pub(super) static WMM_EXPERTS: Kernel =
    kernel!("wmm_experts", &["x", "w", "ss", "sb", "order", "starts"], &["y"], TensorCores);
pub(super) static WMM_EXPERT_FLOW: Kernel =
    kernel!("wmm_expert_flow", &["x", "w", "ss", "sb", "order", "starts"], &["y"], TensorCores);
pub(super) static EXPERT_ROWS: Kernel =
    kernel!("expert_rows", &["experts"], &["order", "starts"], TensorCores);
pub(super) static ROUTE: Kernel =
    kernel!("route", &["logits", "correction", "factors"], &["experts", "weights"], Dialect);
pub(super) static WEIGHTED_SUM: Kernel = kernel!("weighted_sum", &["x", "weights"], &["y"], Dialect);
pub(super) static WMM_STAGED: Kernel = kernel!("wmm_staged", WEIGHTS, &["y"], TensorCores);
pub(super) static WMM_MATRIX: Kernel = kernel!("wmm_matrix", WEIGHTS, &["y"], SimdgroupMatrices);
pub(super) static WMM_WIDE: Kernel = kernel!("wmm_wide", WEIGHTS, &["y"], Warpgroups);
pub(super) static WMM_TILED: Kernel = kernel!("wmm_tiled", WEIGHTS, &["y"], Warpgroups);
pub(super) static ROW_TILES: Kernel = kernel!("row_tiles", &["x"], &["y"], TensorCores);
pub(super) static WMM_DENSE: Kernel = kernel!("wmm_dense", WEIGHTS, &["y"], Warpgroups);
pub(super) static UNPACK: Kernel = kernel!("unpack", &["w", "ss", "sb"], &["y"], TensorCores);
pub(super) static WMM_GROUPED: Kernel =
    kernel!("wmm_grouped", &["x", "w", "order", "starts"], &["y"], Warpgroups);
pub(super) static WMM_GROUPED_PACKED: Kernel =
    kernel!("wmm_grouped_packed", &["x", "w", "ss", "sb", "order", "starts"], &["y"], Warpgroups);
pub(super) static LANE_ORDER: Kernel = kernel!("lane_order", &["x"], &["y"], TensorCores);
pub(super) static WMM_HEADS: Kernel = kernel!("wmm_heads", &["x", "w", "ss", "sb"], &["y"], TensorCores);
pub(super) static WMM_SUM: Kernel = kernel!("wmm_sum", &["x"], &["y"], Dialect);
pub(super) static CHOOSE: Kernel = kernel!("choose", &["logits", "numbers", "top_k"], &["tokens"], Dialect);
pub(super) static CHOOSE_EDITED: Kernel = kernel!(
    "choose_edited",
    &["logits", "numbers", "top_k", "starts", "edited", "changes", "places", "masks"],
    &["tokens"],
    Dialect
);
pub(super) static COPY_BLOCKS: Kernel = kernel!(
    "copy_blocks",
    &[
        "pool0", "pool1", "pool2", "pool3", "pool4", "pool5", "pool6", "pool7", "pool8", "pool9", "pool10",
        "pool11", "pool12", "pool13", "pool14", "pool15", "pairs"
    ],
    &["done"],
    Dialect
);

pub(super) static PEER_ROWS: Kernel = kernel!("peer_rows", &["x", "peers", "after"], &["y"], Peers);
pub(super) static PEER_CHUNKS: Kernel = kernel!("peer_chunks", &["x", "peers", "after"], &["y"], Peers);

/// Texts that bodies include.
const PARTS: &[(&str, &str)] = &[
    ("attn_item.h", include_str!("kernels/attn_item.h")),
    ("attn_copy.h", include_str!("kernels/attn_copy.h")),
    ("attn_span.h", include_str!("kernels/attn_span.h")),
    ("attn_mma_out.h", include_str!("kernels/attn_mma_out.h")),
    ("attn_mma_sum.h", include_str!("kernels/attn_mma_sum.h")),
    ("attn_mma_tail.h", include_str!("kernels/attn_mma_tail.h")),
    ("attn_mma_last.h", include_str!("kernels/attn_mma_last.h")),
    ("attn_parts.h", include_str!("kernels/attn_parts.h")),
    ("attn_tail.h", include_str!("kernels/attn_tail.h")),
    ("attn_last.h", include_str!("kernels/attn_last.h")),
    ("choose_body.h", include_str!("kernels/choose_body.h")),
    ("choose_row.h", include_str!("kernels/choose_row.h")),
    ("head_norm.h", include_str!("kernels/head_norm.h")),
    ("group_sum.h", include_str!("kernels/group_sum.h")),
    ("grouped_columns.h", include_str!("kernels/grouped_columns.h")),
    ("grouped_outputs.h", include_str!("kernels/grouped_outputs.h")),
    ("grouped_turns.h", include_str!("kernels/grouped_turns.h")),
    ("peer_begin.h", include_str!("kernels/peer_begin.h")),
    ("peer_end.h", include_str!("kernels/peer_end.h")),
    ("norm_tail.h", include_str!("kernels/norm_tail.h")),
    ("norm_term.h", include_str!("kernels/norm_term.h")),
    ("runs.h", include_str!("kernels/runs.h")),
    ("wmm_body.h", include_str!("kernels/wmm_body.h")),
    ("wmm_code_products.h", include_str!("kernels/wmm_code_products.h")),
    ("wmm_codes.h", include_str!("kernels/wmm_codes.h")),
    ("wmm_stages.h", include_str!("kernels/wmm_stages.h")),
];

/// Helpers written in the common dialect, with the names that texts use of them.
const HELPERS: &[(&[&str], &str)] = &[
    (&["gk_operand"], include_str!("dialect/operand.h")),
    (&["gk_table"], include_str!("dialect/table.h")),
    (&["gk_erf"], include_str!("dialect/erf.h")),
    (
        &["gk_shfl_long", "gk_sum_long", "gk_part", "gk_weight(", "gk_find", "gk_edited"],
        include_str!("dialect/choice.h"),
    ),
    (&["gk_capped", "gk_weighted"], include_str!("dialect/score.h")),
    (&["gk_head", "gk_store_head"], include_str!("dialect/head.h")),
];

/// Built-in arguments of a Metal kernel; MLX declares those that a body names.
const METAL_BUILT_INS: &str = "// threadgroup_position_in_grid threadgroups_per_grid thread_position_in_threadgroup \
                               thread_index_in_simdgroup simdgroup_index_in_threadgroup\n";

impl Kernel {
    /// Whether a dialect has what the kernel needs.
    pub fn exists_in(&self, dialect: Dialect) -> bool {
        match self.needs {
            Needs::Dialect => true,
            Needs::TensorCores | Needs::Warpgroups | Needs::Peers => dialect == Dialect::Cuda,
            Needs::SimdgroupMatrices => dialect == Dialect::Metal,
        }
    }

    /// Its text in a dialect, without constants. Comments, indentation and helpers that it does not name are left out, because
    /// MLX copies and hashes the text at each call.
    pub fn source(&self, dialect: Dialect) -> Source {
        let (spelling, built_ins) = match dialect {
            Dialect::Cuda => (include_str!("dialect/cuda.h"), ""),
            Dialect::Metal => (include_str!("dialect/metal.h"), METAL_BUILT_INS),
        };
        let more: &[&str] = match self.needs {
            Needs::Dialect => &[],
            Needs::TensorCores => &[include_str!("dialect/cuda_mma.h")],
            Needs::Warpgroups => &[include_str!("dialect/cuda_mma.h"), include_str!("dialect/cuda_wgmma.h")],
            Needs::Peers => &[include_str!("dialect/cuda_peers.h")],
            Needs::SimdgroupMatrices => &[include_str!("dialect/metal_matrix.h")],
        };
        let body = expanded(self.body);
        let names = |name: &&str| body.contains(name) || more.iter().any(|text| text.contains(name));
        let helpers = HELPERS.iter().filter(|(of, _)| of.iter().any(names)).map(|(_, text)| *text);
        let texts = [spelling, include_str!("dialect/common.h")].into_iter().chain(helpers);
        let header = texts.chain(more.iter().copied()).map(without_comments).collect();
        Source { header, body: built_ins.to_owned() + &without_comments(&body) }
    }
}

/// The text with its includes in their places.
fn expanded(text: &str) -> String {
    let line = |line: &str| match line.trim_start().strip_prefix("//@include ") {
        Some(name) => expanded(PARTS.iter().find(|(part, _)| *part == name).map_or("", |(_, text)| text)),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The text without comments and indentation.
fn without_comments(text: &str) -> String {
    let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code).trim());
    code.filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
}
