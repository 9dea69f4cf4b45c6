"""Golden logits of MiMo's MTP head with random weights: `python mimo.py` writes mimo.mtp and seed-11/mimo.mtp; it needs numpy.

A reference in float64, from the equations of vLLM's `model_executor/models/mimo_mtp.py` and of Qwen2's layer. Unlike vLLM it keeps
the embedding at position 0, as the other fixtures here do. The format is that of the fixtures beside it.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "fixtures"))

import generator  # noqa: E402

PROMPT, DECODE, ACCEPTED = 23, 12, 2
CONFIG = {
    "model_type": "mimo", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 80,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "max_position_embeddings": 256, "tie_word_embeddings": False, "num_nextn_predict_layers": 1,
}
HIDDEN, HEADS, KV, DIM = 64, 4, 2, 16


def layer_rows(prefix):
    def matrix(name, rows, columns):
        return [f"{prefix}{name}.weight", [rows, columns], 0.0, round((3 / columns) ** 0.5, 8)]

    def bias(name, rows):
        return [f"{prefix}{name}.bias", [rows], 0.0, 0.1]

    def norm(name):
        return [f"{prefix}{name}.weight", [HIDDEN], 1.0, 0.25]

    attention, mlp = "self_attn.", CONFIG["intermediate_size"]
    widths = {"q_proj": HEADS * DIM, "k_proj": KV * DIM, "v_proj": KV * DIM}
    rows = [norm("input_layernorm"), norm("post_attention_layernorm")]
    rows += [matrix(attention + name, width, HIDDEN) for name, width in widths.items()]
    rows += [bias(attention + name, width) for name, width in widths.items()]
    rows += [matrix(attention + "o_proj", HIDDEN, HEADS * DIM)]
    rows += [matrix("mlp.gate_proj", mlp, HIDDEN), matrix("mlp.up_proj", mlp, HIDDEN), matrix("mlp.down_proj", HIDDEN, mlp)]
    return rows


def recipe():
    vocab = [CONFIG["vocab_size"], HIDDEN]
    tables = [[f"{name}.weight", vocab, 0.0, 0.21650635] for name in ("lm_head", "model.embed_tokens")]
    head = "model.mtp_layers.0."
    norms = [head + name for name in ("token_layernorm", "hidden_layernorm", "final_layernorm")]
    rows = tables + [[f"{name}.weight", [HIDDEN], 1.0, 0.25] for name in ["model.norm", *norms]]
    rows.append([head + "input_proj.weight", [HIDDEN, 2 * HIDDEN], 0.0, 0.15309311])
    for prefix in [*(f"model.layers.{at}." for at in range(CONFIG["num_hidden_layers"])), head]:
        rows += layer_rows(prefix)
    return sorted(rows)


def rms(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + CONFIG["rms_norm_eps"]) * weight


def rotate(x, positions):
    """x: [rows, heads, DIM]."""
    angle = np.asarray(positions, np.float64)[:, None, None] * CONFIG["rope_theta"] ** -(np.arange(0, DIM, 2) / DIM)
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


class Layer:
    """A layer of Qwen2's kind, and the keys and values of the rows that it has read."""

    def __init__(self, tensors, prefix):
        self.of = lambda name: tensors[prefix + name]
        self.keys = self.values = np.zeros((0, KV, DIM))

    def linear(self, name, x, has_bias=False):
        y = x @ self.of(name + ".weight").T
        return y + self.of(name + ".bias") if has_bias else y

    def cut(self, rows):
        self.keys, self.values = self.keys[:rows], self.values[:rows]

    def attention(self, x, positions):
        q, k, v = (self.linear(f"self_attn.{n}_proj", x, True).reshape(len(x), -1, DIM) for n in "qkv")
        self.keys = np.concatenate([self.keys, rotate(k, positions)])
        self.values = np.concatenate([self.values, v])
        keys, values = (np.repeat(of, HEADS // KV, 1) for of in (self.keys, self.values))
        scores = np.einsum("qhd,khd->hqk", rotate(q, positions), keys) * DIM**-0.5
        count = len(keys)
        late = np.arange(count)[None] > np.arange(count - len(x), count)[:, None]
        scores = np.where(late, -np.inf, scores)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", shares, values).reshape(len(x), -1)
        return self.linear("self_attn.o_proj", out)

    def __call__(self, x, positions):
        x = x + self.attention(rms(x, self.of("input_layernorm.weight")), positions)
        y = rms(x, self.of("post_attention_layernorm.weight"))
        gate = self.linear("mlp.gate_proj", y)
        return x + self.linear("mlp.down_proj", gate / (1 + np.exp(-gate)) * self.linear("mlp.up_proj", y))


def target(tensors, tokens):
    """Hidden states behind the last norm."""
    x = tensors["model.embed_tokens.weight"][np.asarray(tokens)]
    for at in range(CONFIG["num_hidden_layers"]):
        x = Layer(tensors, f"model.layers.{at}.")(x, np.arange(len(tokens)))
    return rms(x, tensors["model.norm.weight"])


def rounds(tensors, hidden, prompt, decode):
    """Logits of two rounds of drafting, the second after a rejection."""
    head = "model.mtp_layers.0."
    layer = Layer(tensors, head)

    def run(tokens, states, positions):
        embedded = rms(tensors["model.embed_tokens.weight"][np.asarray(tokens)], tensors[head + "token_layernorm.weight"])
        # The state comes first.
        both = np.concatenate([rms(states, tensors[head + "hidden_layernorm.weight"]), embedded], -1)
        x = layer(both @ tensors[head + "input_proj.weight"].T, np.asarray(positions))
        return rms(x, tensors[head + "final_layernorm.weight"])

    sequence = [*prompt, *decode[: 1 + ACCEPTED], decode[4]]
    found, at = [], 0
    for end, fed in ((PROMPT, decode[1:4]), (PROMPT + 1 + ACCEPTED, decode[5:8])):
        states = [run(sequence[at + 1 : end + 1], hidden[at:end], np.arange(at, end))[-1:]]
        for step, token in enumerate(fed):
            states.append(run([token], states[-1], [end + step]))
        layer.cut(end)
        at = end
        found.append(np.concatenate(states) @ tensors["lm_head.weight"].T)
    return found


def sensitivity(tensors, hidden, prompt, decode, golden):
    """How far logits move, relative to the largest, when each weight of the head moves by up to 2^-20."""
    random, worst = np.random.default_rng(3), 0.0
    for _ in range(3):
        moved = {
            name: of * (1 + 2.0**-20 * random.uniform(-1, 1, of.shape)) if "mtp_layers" in name else of
            for name, of in tensors.items()
        }
        for one, other in zip(golden, rounds(moved, hidden, prompt, decode)):
            worst = max(worst, np.abs(one - other).max() / np.abs(one).max())
    return worst


def save(path, arrays, metadata):
    kinds = {"float32": "F32", "int32": "I32"}
    header, data = {"__metadata__": metadata}, b""
    for name, array in sorted(arrays.items()):
        part = array.tobytes()
        header[name] = {"dtype": kinds[str(array.dtype)], "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make(seed, to):
    generator.SEED = seed
    rows = recipe()
    tensors = {name: generator.generate(name, shape, center, scale).astype(np.float64) for name, shape, center, scale in rows}
    bits = generator.raw("prompt.0", PROMPT + DECODE) >> np.uint64(32)
    tokens = (1 + bits % np.uint64(CONFIG["vocab_size"] - 1)).astype(np.int32)
    prompt, decode = tokens[:PROMPT], tokens[PROMPT:]
    hidden = target(tensors, [*prompt, *decode[: 1 + ACCEPTED]])
    golden = rounds(tensors, hidden, prompt, decode)
    floats = {
        "hidden.0": hidden, "target.0": hidden[PROMPT - 1 :] @ tensors["lm_head.weight"].T,
        "logits.0": golden[0], "logits2.0": golden[1],
    }
    arrays = {"prompt.0": prompt, "decode.0": decode} | {name: of.astype(np.float32) for name, of in floats.items()}
    to.mkdir(parents=True, exist_ok=True)
    (to / "config.json").write_text(json.dumps(CONFIG, separators=(",", ":")) + "\n")
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (to / "tensors.json").write_text(f'{{"generator": 1, "seed": {seed},"tensors":[\n{lines}\n]}}\n')
    moves = f"{sensitivity(tensors, hidden, prompt, decode, golden):.2e}"
    save(to / "golden.safetensors", arrays, {"generator": "1", "seed": str(seed), "sensitivity": moves, "covers": "MTP of mimo"})


if __name__ == "__main__":
    make(7, HERE / "mimo.mtp")
    make(11, HERE / "seed-11/mimo.mtp")
