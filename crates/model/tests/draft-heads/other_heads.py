"""Golden logits of MTP heads whose layers are not all like the target's last: `python other_heads.py` writes NAME.mtp and
seed-11/NAME.mtp; it needs numpy, mlx and mlx-lm.

Targets are those of `../fixtures/NAME.hf`, computed by mlx-lm. The head's layers are of mlx-lm's own parts; how they join the target is
from vLLM's `ernie_mtp.py`, `mimo_v2_mtp.py`, `longcat_flash_mtp.py` and `nemotron_h_mtp.py`. Unlike vLLM's Ernie it keeps the embedding at position 0, as the
other fixtures here do. The format is that of the fixtures beside it.
"""

import importlib
import json
import re
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_causal_mask

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "fixtures")]

import generator  # noqa: E402
from mimo import ACCEPTED, DECODE, PROMPT, save  # noqa: E402

mx.set_default_device(mx.cpu)


class LongcatLayer(nn.Module):
    """A layer of DeepSeek's kind, of LongCat's parts."""

    def __init__(self, module, args):
        super().__init__()
        self.self_attn = module.LongcatFlashMLA(args)
        self.mlp = module.LongcatFlashMLP(args)
        self.input_layernorm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)

    def __call__(self, x, mask):
        x = x + self.self_attn(self.input_layernorm(x), mask)
        return x + self.mlp(self.post_attention_layernorm(x))


# Names of the norms of embeddings, states and results, of the projection, and of the layer; how the layer's parts are published.
HEADS = {
    "ernie4_5_moe": dict(
        layer=lambda module, args: module.Ernie4_5_DecoderLayer(args, 0),
        names=("model.mtp_emb_norm.0", "model.mtp_hidden_norm.0", None, "model.mtp_linear_proj.0", "model.mtp_block.0"),
        published={}, window=None, extra=dict(num_nextn_predict_layers=1),
    ),
    "mimo_v2_flash": dict(
        layer=lambda module, args: module.DecoderLayer(args, False, True),
        names=tuple(f"model.mtp.layers.0{part}" for part in (".enorm", ".hnorm", ".final_layernorm", ".eh_proj", "")),
        published={"post_attention_layernorm": "pre_mlp_layernorm"}, window="sliding_window_size", extra={},
    ),
    "longcat_flash": dict(
        layer=LongcatLayer,
        names=("model.mtp.layers.0.enorm.m", "model.mtp.layers.0.hnorm.m", "model.mtp.norm", "model.mtp.layers.0.eh_proj", "model.mtp.layers.0"),
        published={"mlp": "transformer_layer.mlp"}, window=None, extra={},
    ),
    "nemotron_h.moe": dict(
        layer=lambda module, args: nn.Sequential(module.NemotronHBlock(args, "*"), module.NemotronHBlock(args, "E")),
        names=("mtp.layers.0.enorm", "mtp.layers.0.hnorm", "mtp.layers.1.final_layernorm", "mtp.layers.0.eh_proj", "mtp.layers"),
        published={"layers": ""}, window=None, extra={},
    ),
}


def rms(x, weight, eps):
    return mx.fast.rms_norm(x, weight, eps)


def expanded(name):
    """The names that a row of a recipe stands for."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}", name)
    if not found:
        return [name]
    first, last = map(int, found.groups())
    return [name.replace(found.group(0), str(at)) for at in range(first, last + 1)]


def filled(rows):
    return {
        each: mx.array(generator.generate(each, *row[1:4], *row[4:5]))
        for row in rows for each in expanded(row[0])
    }


class Head:
    """A head whose layer has no cache: all rows are computed anew, which gives the same."""

    def __init__(self, kind, config, tensors):
        module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
        args = module.ModelArgs.from_dict(config)
        self.of, self.window = HEADS[kind], None
        self.eps = config.get("rms_norm_eps", config.get("layernorm_epsilon"))
        self.layer, self.tensors = self.of["layer"](module, args), tensors
        if self.of["window"]:
            self.window = config[self.of["window"]]
        *_, at = self.of["names"]
        weights = {}
        for name, own in tree_flatten(self.layer.parameters()):
            weights[name] = tensors[self.published(at, name)] if self.published(at, name) in tensors else None
        if "self_attn.embed_q.weight" in weights:
            heads, nope, value = args.num_attention_heads, args.qk_nope_head_dim, args.v_head_dim
            both = tensors[f"{at}.self_attn.kv_b_proj.weight"].reshape(heads, nope + value, -1)
            weights["self_attn.embed_q.weight"] = both[:, :nope].swapaxes(-1, -2)
            weights["self_attn.unembed_out.weight"] = both[:, nope:]
        for name, own in weights.items():
            if own is None:
                path, _, part = self.published(at, name).partition(".switch_mlp.")
                parts = {"fc1.weight": "up_proj", "fc2.weight": "down_proj"}
                experts = range(args.n_routed_experts)
                weights[name] = mx.stack([tensors[f"{path}.experts.{e}.{parts[part]}.weight"] for e in experts])
        self.layer.load_weights(list(weights.items()))

    def published(self, at, name):
        for ours, theirs in self.of["published"].items():
            if name.startswith(ours + "."):
                name = (theirs + name[len(ours):]).removeprefix(".")
        return f"{at}.{name}"

    def __call__(self, tokens, states):
        embedding, state, final, projection, _ = self.of["names"]
        weight = lambda name: self.tensors[f"{name}.weight"]
        table = next(name for name in ("model.embed_tokens", "backbone.embeddings") if f"{name}.weight" in self.tensors)
        embedded = weight(table)[mx.array(tokens)]
        both = mx.concatenate([rms(embedded, weight(embedding), self.eps), rms(states, weight(state), self.eps)], -1)
        x = (both @ weight(projection).T)[None]
        mask = create_causal_mask(len(tokens), window_size=self.window)
        if isinstance(self.layer, nn.Sequential):
            attention, experts = self.layer.layers
            x = experts(attention(x, mask))[0]
        else:
            x = self.layer(x, mask)[0]
        return x if final is None else rms(x, weight(final), self.eps)


def rounds(head, hidden, prompt, decode):
    """Logits of two rounds of drafting, the second after a rejection."""
    sequence = [*prompt, *decode[: 1 + ACCEPTED], decode[4]]
    found = []
    for end, fed in ((PROMPT, decode[1:4]), (PROMPT + 1 + ACCEPTED, decode[5:8])):
        tokens, states = list(sequence[1 : end + 1]), hidden[:end]
        made = [head(tokens, states)[-1:]]
        for token in fed:
            tokens, states = [*tokens, token], mx.concatenate([states, made[-1]])
            made.append(head(tokens, states)[-1:])
        found.append(np.array(mx.concatenate(made) @ head.tensors["lm_head.weight"].T))
    return found


def target(config, tensors, tokens):
    """Hidden states behind the last norm, by mlx-lm."""
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(config))
    weights = model.sanitize({name: of for name, of in tensors.items() if "mtp" not in name})
    model.load_weights(list(weights.items()))
    network = model.model if hasattr(model, "model") else model.backbone
    return network(mx.array(tokens)[None])[0]


def head_rows(kind, config, rows):
    """The recipe of the head: matrices as those of the target's, by their inputs."""
    hidden = config["hidden_size"]
    embedding, state, final, projection, at = HEADS[kind]["names"]
    made = [[f"{name}.weight", [hidden], 1.0, 0.25] for name in (embedding, state, final) if name]
    made.append([f"{projection}.weight", [hidden, 2 * hidden], 0.0, round((3 / (2 * hidden)) ** 0.5, 8)])
    if kind == "nemotron_h.moe":
        like = {"backbone.layers.2.": f"{at}.0.", "backbone.layers.3.": f"{at}.1."}
        for name, *rest in rows:
            made += [[to + name[len(of):], *rest] for of, to in like.items() if name.startswith(of)]
        return made
    layers = {"ernie4_5_moe": ["model.layers.0."], "mimo_v2_flash": ["model.layers.0.", "model.layers.1.self_attn."]}
    layers["longcat_flash"] = ["model.layers.0."]
    for prefix in layers[kind]:
        for name, *rest in rows:
            if not name.startswith(prefix):
                continue
            part = name[len("model.layers.0."):]
            if kind == "mimo_v2_flash":
                if prefix == "model.layers.0." and part.startswith("self_attn."):
                    continue
                part = part.replace("post_attention_layernorm", "pre_mlp_layernorm")
            if kind == "longcat_flash":
                if not re.match(r"(self_attn|mlps)\.0\.|\w+_layernorm\.0\.", part):
                    continue
                part = part.replace("mlps.0.", "transformer_layer.mlp.").replace(".0.", ".")
            made.append([f"{at}.{part}", *rest])
    return made


def sensitivity(kind, config, tensors, hidden, prompt, decode, golden):
    """How far logits move, relative to the largest, when each weight of the head moves by up to 2^-20."""
    random, worst = np.random.default_rng(3), 0.0
    for _ in range(3):
        moved = {
            name: of * mx.array(1 + 2.0**-20 * random.uniform(-1, 1, of.shape), mx.float32) if "mtp" in name else of
            for name, of in tensors.items()
        }
        for one, other in zip(golden, rounds(Head(kind, config, moved), hidden, prompt, decode)):
            worst = max(worst, np.abs(one - other).max() / np.abs(one).max())
    return worst


def make(kind, seed, to):
    generator.SEED = seed
    source = HERE.parent / "fixtures" / f"{kind}.hf"
    config = json.loads((source / "config.json").read_text()) | HEADS[kind]["extra"]
    rows = json.loads((source / "tensors.json").read_text())["tensors"]
    # Parts of heads that loaders of the target alone drop.
    rows = [row for row in rows if "mtp" not in row[0]]
    rows = sorted(rows + head_rows(kind, config, rows))
    tensors = filled(rows)
    bits = generator.raw("prompt.0", PROMPT + DECODE) >> np.uint64(32)
    tokens = (1 + bits % np.uint64(config["vocab_size"] - 1)).astype(np.int32)
    prompt, decode = tokens[:PROMPT].tolist(), tokens[PROMPT:].tolist()
    hidden = target(config, tensors, [*prompt, *decode[: 1 + ACCEPTED]])
    golden = rounds(Head(kind, config, tensors), hidden, prompt, decode)
    floats = {
        "hidden.0": hidden, "target.0": hidden[PROMPT - 1 :] @ tensors["lm_head.weight"].T,
        "logits.0": golden[0], "logits2.0": golden[1],
    }
    arrays = {"prompt.0": tokens[:PROMPT], "decode.0": tokens[PROMPT:]}
    arrays |= {name: np.array(of).astype(np.float32) for name, of in floats.items()}
    to.mkdir(parents=True, exist_ok=True)
    (to / "config.json").write_text(json.dumps(config, separators=(",", ":")) + "\n")
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (to / "tensors.json").write_text(f'{{"generator": 1, "seed": {seed},"tensors":[\n{lines}\n]}}\n')
    moves = f"{sensitivity(kind, config, tensors, hidden, prompt, decode, golden):.2e}"
    save(to / "golden.safetensors", arrays, {"generator": "1", "seed": str(seed), "sensitivity": moves, "covers": f"MTP of {kind}"})
    print(kind, seed, moves)


if __name__ == "__main__":
    for name in HEADS:
        make(name, 7, HERE / f"{name}.mtp")
        make(name, 11, HERE / f"seed-11/{name}.mtp")
