"""Checkpoints with random weights for bench/media.py: a Qwen3-VL for images and videos, and a Gemma 4 for sounds.

Both servers of a comparison load the same folder. Names and shapes are those of converted checkpoints, which mlx-vlm and
omnibus read alike. Only the standard library, so that it runs on machines without any network.
"""

import json
import pathlib
import random

TOKENS = pathlib.Path(__file__).resolve().parent.parent / "training/vision/omnibus-see/tokenizer.json"
SPECIAL = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
           "<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", "<|video|>"]
FIRST_SPECIAL = 384
VOCABULARY = 400
TEMPLATE = (
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}{%- else -%}{%- for part in message.content -%}"
    "{%- if part.type in ['image', 'image_url'] -%}{{- 'IMAGE' -}}"
    "{%- elif part.type in ['video', 'video_url'] -%}{{- 'VIDEO' -}}"
    "{%- elif part.type in ['audio', 'input_audio'] -%}{{- '<|audio|>' -}}"
    "{%- elif part.type == 'text' -%}{{- part.text -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{{- '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)

# `tiny` is for trying the script out. `small` has towers of 21 million parameters. `published` has the vision tower of
# Qwen3-VL-4B (24 layers of 1024) and the audio tower of Gemma 4 E2B (12 layers of 1024), and a text model of 0.4 billion.
SIZES = {
    "tiny": dict(
        dtype="float32",
        vision=dict(hidden_size=96, intermediate_size=256, depth=3, num_heads=3, deepstack_visual_indexes=[0]),
        text=dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32),
        audio=dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, output_proj_dims=96)),
    "small": dict(
        dtype="float32",
        vision=dict(hidden_size=384, intermediate_size=1536, depth=11, num_heads=6, deepstack_visual_indexes=[]),
        text=dict(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64),
        audio=dict(hidden_size=304, num_hidden_layers=9, num_attention_heads=8, output_proj_dims=384)),
    "published": dict(
        dtype="bfloat16",
        vision=dict(hidden_size=1024, intermediate_size=4096, depth=24, num_heads=16, deepstack_visual_indexes=[5, 11, 17]),
        text=dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=8, head_dim=128),
        audio=dict(hidden_size=1024, num_hidden_layers=12, num_attention_heads=8, output_proj_dims=1536)),
}


def ascii_bias():
    """A bias to tokens of ASCII: a stream holds back parts of other characters and shows no special tokens, which would
    look like gaps."""
    vocabulary = json.loads(TOKENS.read_text())["model"]["vocab"]
    shown = {id for name, id in vocabulary.items() if all("!" <= character <= "~" for character in name)}
    return {str(id): -100 for id in range(VOCABULARY) if id not in shown}


def token(name):
    return FIRST_SPECIAL + SPECIAL.index(name)


def text_shapes(text, gemma):
    """Names and shapes of the text model's weights."""
    hidden, mlp, head = text["hidden_size"], text["intermediate_size"], text["head_dim"]
    queries, keys = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    model = "language_model.model."
    yield model + "embed_tokens.weight", (VOCABULARY, hidden)
    yield model + "norm.weight", (hidden,)
    norms = ["input_layernorm", "post_attention_layernorm"]
    norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else []
    for layer in range(text["num_hidden_layers"]):
        at = f"{model}layers.{layer}."
        for name, shape in {"self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden),
                            "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries),
                            "self_attn.q_norm": (head,), "self_attn.k_norm": (head,), "mlp.gate_proj": (mlp, hidden),
                            "mlp.up_proj": (mlp, hidden), "mlp.down_proj": (hidden, mlp)}.items():
            yield f"{at}{name}.weight", shape
        for norm in norms:
            yield f"{at}{norm}.weight", (hidden,)
        if gemma:
            yield f"{at}layer_scalar", (1,)


def affine(name, *shape):
    """A weight with its bias."""
    yield name + ".weight", shape
    yield name + ".bias", shape[:1]


def qwen_vision_shapes(vision):
    hidden, width, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    merged, out = hidden * vision["spatial_merge_size"] ** 2, vision["out_hidden_size"]
    tower = "vision_tower."
    yield tower + "patch_embed.proj.weight", (hidden, vision["temporal_patch_size"], patch, patch, 3)
    yield tower + "patch_embed.proj.bias", (hidden,)
    yield tower + "pos_embed.weight", (vision["num_position_embeddings"], hidden)
    for layer in range(vision["depth"]):
        at = f"{tower}blocks.{layer}."
        yield from affine(at + "attn.qkv", 3 * hidden, hidden)
        yield from affine(at + "attn.proj", hidden, hidden)
        yield from affine(at + "mlp.linear_fc1", width, hidden)
        yield from affine(at + "mlp.linear_fc2", hidden, width)
        yield from affine(at + "norm1", hidden)
        yield from affine(at + "norm2", hidden)
    deepstack = [f"deepstack_merger_list.{index}" for index in range(len(vision["deepstack_visual_indexes"]))]
    for name in ["merger", *deepstack]:
        yield from affine(f"{tower}{name}.norm", hidden if name == "merger" else merged)
        yield from affine(f"{tower}{name}.linear_fc1", merged, merged)
        yield from affine(f"{tower}{name}.linear_fc2", out, merged)


def clipped(name, *shape):
    """A linear layer whose inputs and outputs are clipped."""
    yield name + ".linear.weight", shape
    for bound in ("input_min", "input_max", "output_min", "output_max"):
        yield f"{name}.{bound}", ()


def gemma_audio_shapes(audio, text):
    hidden, tower = audio["hidden_size"], "audio_tower."
    first, second = audio["subsampling_conv_channels"]
    yield tower + "subsample_conv_projection.layer0.conv.weight", (first, 3, 3, 1)
    yield tower + "subsample_conv_projection.layer0.norm.weight", (first,)
    yield tower + "subsample_conv_projection.layer1.conv.weight", (second, 3, 3, first)
    yield tower + "subsample_conv_projection.layer1.norm.weight", (second,)
    yield tower + "subsample_conv_projection.input_proj_linear.weight", (hidden, second * 128 // 4)
    for layer in range(audio["num_hidden_layers"]):
        at = f"{tower}layers.{layer}."
        for block in ("feed_forward1", "feed_forward2"):
            yield from clipped(f"{at}{block}.ffw_layer_1", 4 * hidden, hidden)
            yield from clipped(f"{at}{block}.ffw_layer_2", hidden, 4 * hidden)
            yield f"{at}{block}.pre_layer_norm.weight", (hidden,)
            yield f"{at}{block}.post_layer_norm.weight", (hidden,)
        yield from clipped(at + "lconv1d.linear_start", 2 * hidden, hidden)
        yield from clipped(at + "lconv1d.linear_end", hidden, hidden)
        yield at + "lconv1d.depthwise_conv1d.weight", (hidden, audio["conv_kernel_size"], 1)
        for norm in ("lconv1d.conv_norm", "lconv1d.pre_layer_norm", "norm_out", "norm_pre_attn", "norm_post_attn"):
            yield f"{at}{norm}.weight", (hidden,)
        for linear in ("q_proj", "k_proj", "v_proj", "post"):
            yield from clipped(f"{at}self_attn.{linear}", hidden, hidden)
        yield at + "self_attn.relative_k_proj.weight", (hidden, hidden)
        yield at + "self_attn.per_dim_scale", (hidden // audio["num_attention_heads"],)
    yield from affine(tower + "output_proj", audio["output_proj_dims"], hidden)
    yield "embed_audio.embedding_projection.weight", (text["hidden_size"], audio["output_proj_dims"])


def gemma_vision_shapes(vision, text):
    hidden, mlp, head = vision["hidden_size"], vision["intermediate_size"], vision["head_dim"]
    tower = "vision_tower."
    for layer in range(vision["num_hidden_layers"]):
        at = f"{tower}encoder.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield f"{at}self_attn.{name}.linear.weight", (hidden, hidden)
        for name, shape in {"gate_proj": (mlp, hidden), "up_proj": (mlp, hidden), "down_proj": (hidden, mlp)}.items():
            yield f"{at}mlp.{name}.linear.weight", shape
        for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"):
            yield f"{at}{norm}.weight", (hidden,)
        yield at + "self_attn.q_norm.weight", (head,)
        yield at + "self_attn.k_norm.weight", (head,)
    yield tower + "patch_embedder.input_proj.weight", (hidden, 3 * vision["patch_size"] ** 2)
    yield tower + "patch_embedder.position_embedding_table", (2, vision["position_embedding_size"], hidden)
    yield tower + "std_bias", (hidden,)
    yield tower + "std_scale", (hidden,)
    yield "embed_vision.embedding_projection.weight", (text["hidden_size"], hidden)


def values(rng, name, shape, dtype):
    """Bytes of a tensor in little endian: ones for norms and scales, else numbers of either sign between 2^-7 and 2^-5."""
    count = 1
    for size in shape:
        count *= size
    wide = 4 if dtype == "float32" else 2
    if "norm" in name and name.endswith("weight") or name.endswith(("scalar", "scale")):
        return (b"\0" * (wide - 2) + b"\x80\x3f") * count
    if name.endswith(("_min", "_max")):
        # 256 and -256: nothing is clipped.
        return b"\0" * (wide - 2) + (b"\x80\xc3" if name.endswith("_min") else b"\x80\x43")
    data = bytearray(wide * count)
    data[wide - 2::wide] = rng.randbytes(count)
    data[wide - 1::wide] = rng.randbytes(count).translate(bytes(0x3C | byte & 0x80 for byte in range(256)))
    return bytes(data)


def write_weights(folder, shapes, dtype):
    """A safetensors file. Its header says that names are of a converted checkpoint."""
    rng, header, data, end = random.Random(7), {"__metadata__": {"format": "mlx"}}, [], 0
    for name, shape in shapes:
        data.append(values(rng, name, shape, dtype))
        offsets = [end, end + len(data[-1])]
        end = offsets[1]
        header[name] = dict(dtype={"float32": "F32", "bfloat16": "BF16"}[dtype], shape=shape, data_offsets=offsets)
    head = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.writelines(data)
    return end


def write_tokenizer(folder, template, named):
    """The tokenizer of the repository's model that sees, with the placeholders of both families."""
    tokenizer = json.loads(TOKENS.read_text())
    for name in SPECIAL:
        tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][-1], id=token(name), content=name))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = dict(eos_token="<|im_end|>", pad_token="<|endoftext|>", tokenizer_class="PreTrainedTokenizerFast",
                  model_max_length=32768, chat_template=template, extra_special_tokens=named)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_json(folder, name, value):
    (folder / name).write_text(json.dumps(value))


def make_qwen(folder, size):
    """A Qwen3-VL. Returns the bytes of its weights."""
    folder.mkdir()
    dtype, text = size["dtype"], size["text"]
    vision = dict(in_channels=3, out_hidden_size=text["hidden_size"], patch_size=16, spatial_merge_size=2, temporal_patch_size=2,
                  num_position_embeddings=2304, hidden_act="gelu_pytorch_tanh", model_type="qwen3_vl") | size["vision"]
    half = text["head_dim"] // 2
    sections = [half - 2 * (half // 3), half // 3, half // 3]
    write_json(folder, "config.json", dict(
        architectures=["Qwen3VLForConditionalGeneration"], model_type="qwen3_vl", tie_word_embeddings=True, torch_dtype=dtype,
        image_token_id=token("<|image_pad|>"), video_token_id=token("<|video_pad|>"), eos_token_id=382,
        vision_start_token_id=token("<|vision_start|>"), vision_end_token_id=token("<|vision_end|>"), vision_config=vision,
        text_config=text | dict(vocab_size=VOCABULARY, rms_norm_eps=1e-6, rope_theta=5e6, max_position_embeddings=32768,
                                tie_word_embeddings=True, model_type="qwen3_vl_text", attention_bias=False,
                                rope_scaling=dict(mrope_interleaved=True, mrope_section=sections, rope_type="default"))))
    processor = dict(patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    write_json(folder, "preprocessor_config.json", processor | dict(
        image_processor_type="Qwen2VLImageProcessorFast", size=dict(shortest_edge=65536, longest_edge=16777216)))
    write_json(folder, "video_preprocessor_config.json", processor | dict(
        video_processor_type="Qwen3VLVideoProcessor", size=dict(shortest_edge=4096, longest_edge=25165824),
        fps=2, min_frames=4, max_frames=768))
    template = TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    write_tokenizer(folder, template.replace("VIDEO", "<|vision_start|><|video_pad|><|vision_end|>"), dict(
        image_token="<|image_pad|>", video_token="<|video_pad|>",
        vision_start_token="<|vision_start|>", vision_end_token="<|vision_end|>"))
    return write_weights(folder, [*text_shapes(text, gemma=False), *qwen_vision_shapes(vision)], dtype)


def make_gemma(folder, size):
    """A Gemma 4 that hears; its vision tower is small. Returns the bytes of its weights."""
    folder.mkdir()
    dtype, text = size["dtype"], size["text"]
    layers = text["num_hidden_layers"]
    audio = dict(model_type="gemma4_audio", hidden_act="silu", subsampling_conv_channels=[128, 32], conv_kernel_size=5,
                 residual_weight=0.5, attention_chunk_size=12, attention_context_left=13, attention_context_right=0,
                 attention_logit_cap=50.0, use_clipped_linears=True, rms_norm_eps=1e-6) | size["audio"]
    vision = dict(hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                  head_dim=12, global_head_dim=12, patch_size=16, position_embedding_size=64, pooling_kernel_size=2,
                  default_output_length=12, rms_norm_eps=1e-6, model_type="gemma4_vision", use_clipped_linears=False,
                  standardize=True, rope_parameters=dict(rope_theta=100.0, rope_type="default"))
    kinds = ["sliding_attention"] * (layers - 1) + ["full_attention"]
    write_json(folder, "config.json", dict(
        architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", tie_word_embeddings=True, torch_dtype=dtype,
        image_token_id=token("<|image|>"), audio_token_id=token("<|audio|>"), video_token_id=token("<|video|>"),
        boi_token_id=token("<|image>"), eoi_token_id=token("<image|>"), boa_token_id=token("<|audio>"),
        eoa_token_id=token("<audio|>"), eoa_token_index=token("<audio|>"), pad_token_id=380, eos_token_id=382,
        vision_soft_tokens_per_image=12, vision_config=vision, audio_config=audio,
        text_config=text | dict(vocab_size=VOCABULARY, rms_norm_eps=1e-6, max_position_embeddings=32768, tie_word_embeddings=True,
                                model_type="gemma4_text", hidden_size_per_layer_input=0, num_kv_shared_layers=0,
                                vocab_size_per_layer_input=VOCABULARY, use_double_wide_mlp=False,
                                global_head_dim=text["head_dim"], hidden_activation="gelu_pytorch_tanh", sliding_window=1024,
                                sliding_window_pattern=layers, final_logit_softcapping=30.0, layer_types=kinds,
                                rope_parameters=dict(full_attention=dict(partial_rotary_factor=0.25, rope_theta=1e6, rope_type="proportional"),
                                                     sliding_attention=dict(rope_theta=1e4, rope_type="default")))))
    write_json(folder, "processor_config.json", dict(
        processor_class="Gemma4Processor", audio_seq_length=750, audio_ms_per_token=40,
        image_processor=dict(image_processor_type="Gemma4ImageProcessor", max_soft_tokens=12, patch_size=16,
                             pooling_kernel_size=2, resample=3, do_normalize=False)))
    template = TEMPLATE.replace("IMAGE", "<|image|>").replace("VIDEO", "<|video|>")
    write_tokenizer(folder, template, dict(
        image_token="<|image|>", boi_token="<|image>", eoi_token="<image|>", audio_token="<|audio|>", boa_token="<|audio>",
        eoa_token="<audio|>", video_token="<|video|>"))
    shapes = [*text_shapes(text, gemma=True), *gemma_audio_shapes(audio, text), *gemma_vision_shapes(vision, text)]
    return write_weights(folder, shapes, dtype)
