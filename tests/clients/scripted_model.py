"""Writes a model directory whose model says given texts: tool calls and answers that tests know in advance.

    scripted_model.py DIRECTORY [--file PATH] [--word WORD] [--context TOKENS] [--tool NAME]

The weights are a table of successors. The texts are cut into pieces that are tokens of their own, each piece once, and a
token's logits point at the piece after it. The chat template ends each prompt with the token that a text begins with:
with a tool of `CALLS`, a call of it; behind a tool's result, the answer with the word; else a short text. No other module
than Python's own is needed.
"""

import argparse
import json
import pathlib
import random
import struct

WIDTH = 128
STRENGTH = 8.0
MINI = pathlib.Path(__file__).resolve().parents[2] / "crates/cli/models/omnibus-mini"
THOUGHT = "<think>\nThe tool '%s' gives what is missing.\n</think>\n\n"

# The tools of known clients that read a file, and their arguments.
CALLS = {
    "Read": '{"file_path": "%s"}',
    "exec_command": '{"cmd": "cat %s"}',
    "read": '{"filePath": "%s"}',
    "read_file": '{"%s": "%s"}',
}

TEMPLATE = """{%- macro text_of(content) -%}
{%- if content is string -%}{{- content -}}
{%- elif content is iterable and content is not mapping -%}{%- for part in content -%}{%- if part.text is string -%}{{- part.text -}}{%- endif -%}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(say='PLAIN', found='') -%}
{{- '<|im_start|>tools\\n' -}}
{%- for tool in tools or [] -%}
{{- tool | tojson -}}{{- '\\n' -}}
{%- if tool.function.name in CALLS -%}
{%- set ns.found = tool.function.name -%}
{%- if tool.function.name == 'read_file' and not tool.function.parameters.properties.file_path is defined -%}{%- set ns.found = 'read_path' -%}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- if ns.found -%}{%- set ns.say = ns.found -%}{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.reasoning_content -%}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}{%- endif -%}
{{- text_of(message.content) -}}
{%- for call in message.tool_calls or [] -%}
{{- '<tool_call>\\n{"name": ' -}}{{- call.function.name | tojson -}}{{- ', "arguments": ' -}}{{- call.function.arguments | tojson -}}{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- if message.role == 'tool' -%}{%- set ns.say = 'FINAL' -%}{%- endif -%}
{%- if message.role == 'assistant' -%}{%- set ns.say = ns.found or 'PLAIN' -%}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<|say:' + ns.say + '|>' -}}{%- endif -%}
"""


def call_of(tool, arguments):
    return THOUGHT % tool + '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (tool, arguments)


def texts(file, word):
    said = {tool: call_of(tool, form % file) for tool, form in CALLS.items() if tool != "read_file"}
    said["read_file"] = call_of("read_file", CALLS["read_file"] % ("file_path", file))
    said["read_path"] = call_of("read_file", CALLS["read_file"] % ("path", file))
    said["FINAL"] = f"The file says that the word is {word}."
    said["PLAIN"] = "A short answer."
    return said


def pieces_of(text, taken):
    """Cuts a text into strings that no other text has as a piece."""
    pieces = []
    while text:
        length = 4
        while length < len(text) and text[:length] in taken:
            length += 1
        piece, text = text[:length], text[length:]
        while piece in taken:
            if not pieces:
                raise SystemExit(f"two texts are {piece!r}")
            before = pieces.pop()
            taken.discard(before)
            piece = before + piece
        taken.add(piece)
        pieces.append(piece)
    return pieces


def table_of(table):
    return {token["content"]: token["id"] for token in table["added_tokens"]}


def tokenizer(said):
    table = json.loads((MINI / "tokenizer.json").read_text())
    taken = set(table["model"]["vocab"]) | {token["content"] for token in table["added_tokens"]}
    size = max([*table["model"]["vocab"].values(), *(token["id"] for token in table["added_tokens"])]) + 1
    ids = {token["content"]: token["id"] for token in table["added_tokens"]}
    successors = {}

    def add(content, special):
        nonlocal size
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        table["added_tokens"].append({"id": size, "content": content, "special": special, **plain})
        size += 1
        return size - 1

    for name, text in said.items():
        last = add(f"<|say:{name}|>", True)
        for piece in pieces_of(text, taken):
            token = add(piece, False)
            successors[last] = token
            last = token
        successors[last] = ids["<|im_end|>"]
    # Where a server ends the reasoning itself, a short answer follows.
    successors[add("</think>", False)] = successors[table_of(table)["<|say:PLAIN|>"]]
    return table, size, successors


def weights(size, successors):
    noise = random.Random(0)
    embedding = [[noise.gauss(0, WIDTH**-0.5) for _ in range(WIDTH)] for _ in range(size)]
    head = [[0.0] * WIDTH for _ in range(size)]
    for token, successor in successors.items():
        head[successor] = [a + STRENGTH * b for a, b in zip(head[successor], embedding[token])]
    zeros = [[0.0] * WIDTH for _ in range(WIDTH)]
    ones = [1.0] * WIDTH
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": ones}
    layer = "model.layers.0."
    for name in ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]:
        tensors[f"{layer}{name}.weight"] = zeros
    for name in ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]:
        tensors[f"{layer}{name}.weight"] = zeros
    tensors[f"{layer}input_layernorm.weight"] = ones
    tensors[f"{layer}post_attention_layernorm.weight"] = ones
    return tensors


def safetensors(tensors):
    header, data = {}, bytearray()
    for name, rows in tensors.items():
        shape = [len(rows), len(rows[0])] if isinstance(rows[0], list) else [len(rows)]
        flat = [value for row in rows for value in row] if len(shape) == 2 else rows
        packed = struct.pack(f"<{len(flat)}f", *flat)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--file", default="/tmp/client-check/hello.txt")
    parser.add_argument("--word", default="PINEAPPLE")
    parser.add_argument("--context", type=int, default=200_000)
    parser.add_argument("--tool", help="another tool that is called, with the path as its text")
    options = parser.parse_args()
    if options.tool:
        CALLS[options.tool] = '{"text": "%s"}'
    table, size, successors = tokenizer(texts(options.file, options.word))
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "num_hidden_layers": 1,
        "intermediate_size": WIDTH, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": WIDTH,
        "vocab_size": size, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "max_position_embeddings": options.context, "tie_word_embeddings": False, "eos_token_id": [2041, 2039],
        "torch_dtype": "float32",
    }
    names = json.loads((MINI / "tokenizer_config.json").read_text())
    names = {key: value for key, value in names.items() if key not in ("added_tokens_decoder", "chat_template")}
    known = "[" + ", ".join(f"'{name}'" for name in CALLS) + "]"
    to = options.directory
    to.mkdir(parents=True, exist_ok=True)
    (to / "tokenizer.json").write_text(json.dumps(table))
    (to / "tokenizer_config.json").write_text(json.dumps(names))
    (to / "chat_template.jinja").write_text(TEMPLATE.replace("CALLS", known))
    (to / "config.json").write_text(json.dumps(config, indent=2))
    (to / "model.safetensors").write_bytes(safetensors(weights(size, successors)))


main()
