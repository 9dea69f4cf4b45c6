//! Rewrites that several families share: from a checkpoint's tensor names to those of our blocks.
//!
//! Our names are Llama's: `model.layers.N.self_attn.q_proj`, `model.layers.N.mlp.up_proj` and so on.

use crate::*;

/// Tensors under this pattern go unread.
pub(super) fn drop(tensors: &str) -> WeightRewrite {
    WeightRewrite::Drop { tensors: tensors.into() }
}

/// Other names for modules, whatever tensors they have.
pub(super) fn modules<const N: usize>(renames: [(&str, &str); N]) -> Vec<WeightRewrite> {
    let rename = |(from, to): (&str, &str)| WeightRewrite::Rename {
        from: format!("{from}.*").into(),
        to: format!("{to}.*").into(),
    };
    renames.map(rename).into()
}

/// Other names for parts of layers, below `model.layers.N`.
pub(super) fn parts_of_layers<const N: usize>(renames: [(&str, &str); N]) -> Vec<WeightRewrite> {
    let rename = |(from, to): (&str, &str)| WeightRewrite::Rename {
        from: format!("model.layers.*.{from}.*").into(),
        to: format!("model.layers.*.{to}.*").into(),
    };
    renames.map(rename).into()
}

/// The names of GPT-2's layers, norms and embedding, and of the modules that several families have like it.
pub(super) fn gpt2_names() -> Vec<WeightRewrite> {
    let parts = parts_of_layers([
        ("ln_1", "input_layernorm"),
        ("ln_2", "post_attention_layernorm"),
        ("attn.c_attn", "self_attn.qkv_proj"),
        ("attn.c_proj", "self_attn.o_proj"),
        ("mlp.c_proj", "mlp.down_proj"),
    ]);
    let around = modules([("transformer.wte", "model.embed_tokens"), ("transformer.ln_f", "model.norm")]);
    [around, vec![prefix("transformer.h", "model.layers")], parts].concat()
}

/// One tensor for all layers, each of which has it.
pub(super) fn of_each_layer(from: &str, layers: usize, to: &str) -> WeightRewrite {
    let to = (0..layers).map(|layer| format!("model.layers.{layer}.{to}").into());
    WeightRewrite::Share { from: from.into(), to: to.collect() }
}

/// Another name for everything below a prefix.
pub(super) fn prefix(from: &str, to: &str) -> WeightRewrite {
    WeightRewrite::Rename { from: format!("{from}.**").into(), to: format!("{to}.**").into() }
}

/// One projection to queries, keys and values, apart.
pub(super) fn split_qkv(from: &str, spec: &Attention) -> WeightRewrite {
    let (q, k, v) =
        (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.v_head_dim);
    split(from, &[("q_proj", q), ("k_proj", k), ("v_proj", v)])
}

/// One projection to queries, keys, values and then a gate of each element of the output, apart.
pub(super) fn split_qkv_and_gate(from: &str, spec: &Attention) -> WeightRewrite {
    let (q, k, v) =
        (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.v_head_dim);
    let gate = spec.heads * spec.v_head_dim;
    split(from, &[("q_proj", q), ("k_proj", k), ("v_proj", v), ("gate_proj", gate)])
}

/// One projection to a gate and up, apart.
pub(super) fn split_gate_up(from: &str, width: usize) -> WeightRewrite {
    split(from, &[("gate_proj", width), ("up_proj", width)])
}

/// One module as several beside it, with so many outputs each.
pub(super) fn split(from: &str, to: &[(&str, usize)]) -> WeightRewrite {
    let parent = from.rsplit_once('.').map_or("", |(parent, _)| parent);
    let to = to.iter().map(|(name, rows)| (format!("{parent}.{name}.*").into(), *rows));
    WeightRewrite::Split { from: format!("{from}.*").into(), to: to.collect() }
}

/// A projection that yields, for each key head in turn, its queries, its key and its value, in the order of
/// [`split_qkv`].
pub(super) fn ungrouped(module: &str, spec: &Attention) -> WeightRewrite {
    let (dim, shared) = (spec.head_dim, spec.heads / spec.kv_heads.max(1));
    let head = |at: usize| at * dim..(at + 1) * dim;
    let queries = (0..spec.heads).map(|head| head / shared * (shared + 2) + head % shared);
    let keys = (0..spec.kv_heads).map(|head| head * (shared + 2) + shared);
    let values = (0..spec.kv_heads).map(|head| head * (shared + 2) + shared + 1);
    let rows = queries.chain(keys).chain(values).flat_map(head).collect();
    WeightRewrite::TakeRows { tensors: format!("{module}.*").into(), rows }
}

/// Queries or keys whose heads have their halves exchanged. A rotation the other way round is the usual one of heads
/// like that, and scores stay the same.
pub(super) fn halves_exchanged(module: &str, heads: usize, head_dim: usize) -> WeightRewrite {
    let half = head_dim / 2;
    let rows =
        (0..heads * head_dim).map(|row| row / head_dim * head_dim + (row % head_dim + half) % head_dim);
    WeightRewrite::TakeRows { tensors: format!("{module}.*").into(), rows: rows.collect() }
}

/// Queries and keys stored for a rotation of halves, as one of neighbours takes them.
pub(super) fn pairs_side_by_side(spec: &Attention) -> Vec<WeightRewrite> {
    let head_dim = spec.head_dim;
    let of_head = |row: usize| row / 2 + row % 2 * (head_dim / 2);
    let of_module = |(name, heads): (&str, usize)| WeightRewrite::TakeRows {
        tensors: format!("model.layers.*.self_attn.{name}.*").into(),
        rows: (0..heads * head_dim).map(|row| row / head_dim * head_dim + of_head(row % head_dim)).collect(),
    };
    [("q_proj", spec.heads), ("k_proj", spec.kv_heads)].map(of_module).into()
}

/// The text model of a checkpoint with encoders of pictures or sound.
pub(super) fn text_model() -> Vec<WeightRewrite> {
    let encoders = ["vision_tower", "multi_modal_projector", "visual", "model.visual", "model.vision_tower"];
    let more = ["mtp", "model.multi_modal_projector", "connector", "model.connector", "vision_model"];
    let more = more.into_iter().chain(["model.vision_model"]).map(str::to_owned);
    let of_sound_and_pictures = [
        "audio_tower",
        "embed_audio",
        "embed_vision",
        "vision_embedder",
        "vision_adapter",
        "vision_projection",
    ];
    let of_sound_and_pictures =
        of_sound_and_pictures.into_iter().flat_map(|name| [name.to_owned(), format!("model.{name}")]);
    let encoders = encoders.map(str::to_owned).into_iter().chain(more).chain(of_sound_and_pictures);
    let vectors = ["image_newline", "model.image_newline"].map(drop);
    let dropped = encoders.map(|encoder| drop(&format!("{encoder}.**"))).chain(vectors);
    let renamed = [
        WeightRewrite::DropBeside {
            tensors: "model.layers.**".into(),
            other: "model.language_model.**".into(),
        },
        prefix("model.language_model", "model"),
        prefix("language_model.model", "model"),
        prefix("language_model.lm_head", "lm_head"),
        prefix("language_model", "model"),
        prefix("model.text_model", "model"),
        drop("**.rotary_emb.inv_freq"),
    ];
    dropped.chain(renamed).collect()
}

/// Heads of queries that read the keys of head `h mod kv_heads`, in the order of their keys: in `q_proj` they are outputs,
/// in `o_proj` inputs.
pub(super) fn heads_by_key(dims: &Dims) -> Vec<WeightRewrite> {
    let shared = dims.heads / dims.kv_heads.max(1);
    let head = |at: usize| at * dims.head_dim..(at + 1) * dims.head_dim;
    let order = (0..dims.heads).map(|at| at % shared * dims.kv_heads + at / shared);
    let elements: Vec<usize> = order.flat_map(head).collect();
    vec![
        WeightRewrite::TakeRows {
            tensors: "model.layers.*.self_attn.q_proj.*".into(),
            rows: elements.clone(),
        },
        WeightRewrite::TakeInputs {
            tensors: "model.layers.*.self_attn.o_proj.weight".into(),
            inputs: elements,
        },
    ]
}

/// Keys that a checkpoint may have of layers that read another's.
pub(super) fn unread_keys(readers: impl IntoIterator<Item = usize>) -> Vec<WeightRewrite> {
    let of_layer = |reader: usize| {
        ["k_proj", "v_proj", "k_norm"].map(|name| drop(&format!("model.layers.{reader}.self_attn.{name}.*")))
    };
    readers.into_iter().flat_map(of_layer).collect()
}

/// Experts published as one tensor for gates and ups and one for downs, each `[experts, in, out]`.
pub(super) fn turned_experts(width: usize) -> Vec<WeightRewrite> {
    let turned = ["gate_up_proj", "down_proj"].map(|name| WeightRewrite::Transposed {
        tensors: format!("model.layers.*.mlp.experts.{name}").into(),
    });
    [turned.to_vec(), joined_experts(width)].concat()
}

/// Experts published as one tensor for gates and ups and one for downs, each `[experts, out, in]`.
pub(super) fn joined_experts(width: usize) -> Vec<WeightRewrite> {
    let named = tensors_of_layers([
        ("mlp.experts.gate_up_proj", "mlp.switch_mlp.gate_up_proj.weight"),
        ("mlp.experts.down_proj", "mlp.switch_mlp.down_proj.weight"),
    ]);
    [named, vec![split_gate_up("model.layers.*.mlp.switch_mlp.gate_up_proj", width)]].concat()
}

/// Other names for tensors of layers, below `model.layers.N`.
pub(super) fn tensors_of_layers<const N: usize>(renames: [(&str, &str); N]) -> Vec<WeightRewrite> {
    let rename = |(from, to): (&str, &str)| WeightRewrite::Rename {
        from: format!("model.layers.*.{from}").into(),
        to: format!("model.layers.*.{to}").into(),
    };
    renames.map(rename).into()
}

/// Published experts are one module each; ours are stacked. mlx-lm calls the stack `experts` in some models.
pub(super) fn stacked_experts(experts: usize) -> Vec<WeightRewrite> {
    let stack = WeightRewrite::StackExperts {
        from: "model.layers.*.mlp.experts.#.*.*".into(),
        to: "model.layers.*.mlp.switch_mlp.*.*".into(),
        experts,
    };
    [vec![stack], tensors_of_layers([("mlp.experts.*.*", "mlp.switch_mlp.*.*")])].concat()
}

/// Mixtral's names of the matrices of an MLP.
pub(super) fn numbered_matrices() -> Vec<WeightRewrite> {
    inside_layers([("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")])
}

/// Other names for modules, wherever they are inside parts of layers.
pub(super) fn inside_layers<const N: usize>(renames: [(&str, &str); N]) -> Vec<WeightRewrite> {
    let rename = |(from, to): (&str, &str)| WeightRewrite::Rename {
        from: format!("model.layers.*.**.{from}.*").into(),
        to: format!("model.layers.*.**.{to}.*").into(),
    };
    renames.map(rename).into()
}

/// Depthwise convolutions: `[channels, 1, conv_kernel_size]` as published, `[channels, conv_kernel_size, 1]` in MLX.
pub(super) fn depthwise_to_mlx(tensors: &str) -> WeightRewrite {
    WeightRewrite::Transpose { tensors: tensors.into(), order: [0, 2, 1], unless_last: 1 }
}

/// Depthwise convolutions of queries, keys and values in delta attention, from the published shape to MLX's.
pub(super) fn delta_convs() -> Vec<WeightRewrite> {
    ["q", "k", "v"].map(|part| depthwise_to_mlx(&format!("**.{part}_conv1d.weight"))).into()
}

/// Where the rows of a projection come from that is stored head by head and wanted part by part.
pub(super) fn apart(heads: usize, widths: &[usize]) -> Vec<usize> {
    let whole: usize = widths.iter().sum();
    let mut before = 0;
    let mut rows = Vec::with_capacity(heads * whole);
    for width in widths {
        rows.extend((0..heads * width).map(|row| row / width * whole + before + row % width));
        before += width;
    }
    rows
}
