"""A small Qwen3 in plain PyTorch, with the parameter names of the checkpoint format. check.py compares it with mlx-lm.

Documents packed into one row do not see each other: the mask is causal within a document, and positions restart.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

PRESETS = {
    "gpu": dict(hidden_size=256, num_hidden_layers=8, intermediate_size=704, num_attention_heads=4, num_key_value_heads=2, head_dim=64),
    "cpu": dict(hidden_size=192, num_hidden_layers=5, intermediate_size=512, num_attention_heads=3, num_key_value_heads=1, head_dim=64),
}


def config_of(preset, vocabulary, stop, end):
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **PRESETS[preset], "vocab_size": vocabulary, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 20000.0, "max_position_embeddings": 4096,
        "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0, "use_cache": True, "initializer_range": 0.02, "bos_token_id": stop, "eos_token_id": end, "torch_dtype": "float32",
    }


def rotate(x, angles):
    """Rotary positions, the two halves of a head paired. `x`: [batch, heads, length, head_dim]; `angles`: [batch, 1, length, head_dim / 2]."""
    left, right = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        hidden, head = cfg["hidden_size"], cfg["head_dim"]
        self.heads, self.groups, self.head = cfg["num_attention_heads"], cfg["num_key_value_heads"], head
        self.q_proj = nn.Linear(hidden, self.heads * head, bias=False)
        self.k_proj = nn.Linear(hidden, self.groups * head, bias=False)
        self.v_proj = nn.Linear(hidden, self.groups * head, bias=False)
        self.o_proj = nn.Linear(self.heads * head, hidden, bias=False)
        self.q_norm = nn.RMSNorm(head, eps=cfg["rms_norm_eps"])
        self.k_norm = nn.RMSNorm(head, eps=cfg["rms_norm_eps"])

    def forward(self, x, angles, attend):
        batch, length, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(batch, length, self.heads, self.head)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(batch, length, self.groups, self.head)).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.groups, self.head).transpose(1, 2)
        out = attend(rotate(q, angles).to(v.dtype), rotate(k, angles).to(v.dtype), v)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.gate_proj = nn.Linear(cfg["hidden_size"], cfg["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(cfg["hidden_size"], cfg["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(cfg["intermediate_size"], cfg["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.self_attn, self.mlp = Attention(cfg), Mlp(cfg)
        self.input_layernorm = nn.RMSNorm(cfg["hidden_size"], eps=cfg["rms_norm_eps"])
        self.post_attention_layernorm = nn.RMSNorm(cfg["hidden_size"], eps=cfg["rms_norm_eps"])

    def forward(self, x, angles, attend):
        x = x + self.self_attn(self.input_layernorm(x), angles, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Qwen3(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed_tokens = nn.Embedding(cfg["vocab_size"], cfg["hidden_size"])
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg["num_hidden_layers"]))
        self.norm = nn.RMSNorm(cfg["hidden_size"], eps=cfg["rms_norm_eps"])
        half = torch.arange(0, cfg["head_dim"], 2).float() / cfg["head_dim"]
        self.register_buffer("frequencies", cfg["rope_theta"] ** -half, persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.03 / (2 * len(self.layers)) ** 0.5 if deep else 0.03)

    def forward(self, tokens, positions, attend):
        """Logits of every position. `tokens`, `positions`: [batch, length]; `attend` mixes q, k, v under the mask."""
        angles = (positions.float()[:, None, :, None] * self.frequencies)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, angles, attend)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def dense_attend(documents):
    """Attention with an explicit mask, for any device. `documents`: [batch, length], the document of each token."""
    length = documents.shape[1]
    mask = (documents[:, None, :, None] == documents[:, None, None, :]) & torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()

    def attend(q, k, v):
        times = q.shape[1] // k.shape[1]
        return F.scaled_dot_product_attention(q, k.repeat_interleave(times, 1), v.repeat_interleave(times, 1), attn_mask=mask)

    return attend


def flex_mask(documents):
    """The same mask in blocks, for the compiled attention on a GPU."""
    from torch.nn.attention.flex_attention import create_block_mask

    def visible(batch, head, query, key):
        return (query >= key) & (documents[batch, query] == documents[batch, key])

    batch, length = documents.shape
    return create_block_mask(visible, batch, None, length, length, device=documents.device, _compile=True)


def flex_attend(mask):
    from torch.nn.attention.flex_attention import flex_attention

    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
