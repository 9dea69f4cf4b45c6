"""Trains the vision model on pictures that `pictures.py` draws, and writes its model directory.

    python3 training/vision/train.py --to FOLDER [--pictures 300000] [--steps 6000] [--batch 512] [--seconds 0]

Needs torch, transformers, tokenizers, safetensors and Pillow. A LLaVA: a SigLIP tower, two linear layers, a small Llama.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import time
from pathlib import Path

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, SiglipVisionConfig

import pictures

SIZE, PATCH = 80, 8
IMAGE_TOKENS = (SIZE // PATCH) ** 2
STOP, START, END, IMAGE = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>"
SPECIAL = [STOP, START, END, IMAGE]
VOCABULARY = 384
WIDTH = 192
"""Tokens of a conversation, those of its picture included."""

TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}{{- message.content -}}
{%- else -%}{%- for part in message.content -%}
{%- if part.type == 'image' -%}{{- '<image>\\n' -}}{%- elif part.type == 'text' -%}{{- part.text -}}{%- endif -%}
{%- endfor -%}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def train_tokenizer(seed):
    """Bytes, digits alone, and the words of the questions."""
    rng = random.Random(f"tokenizer/{seed}")
    texts = [f"{question}\n{answer}" for _ in range(4000) for _, question, answer in pictures.picture(rng)[1]]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - len(SPECIAL), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in SPECIAL])
    return tokenizer


def pixels_of(image):
    """As SigLIP's processor resizes."""
    return numpy.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC), dtype=numpy.uint8)


def conversation(tokenizer, asked):
    """Token ids, and which of them the assistant writes."""
    ids, learned = [], []
    for turn, (_, question, answer) in enumerate(asked):
        before = f"{START}user\n" + (IMAGE + "\n" if turn == 0 else "") + f"{question}{END}\n{START}assistant\n"
        for text, writes in [(before, 0), (f"{answer}{END}", 1), ("\n", 0)]:
            new = tokenizer.encode(text, add_special_tokens=False).ids
            ids += new
            learned += [writes] * len(new)
    at = ids.index(tokenizer.token_to_id(IMAGE))
    ids[at : at + 1] = [ids[at]] * IMAGE_TOKENS
    learned[at : at + 1] = [0] * IMAGE_TOKENS
    return ids[:WIDTH], learned[:WIDTH]


def shard(job):
    text, seed, number, count = job
    tokenizer, rng = Tokenizer.from_str(text), random.Random(f"{seed}/{number}")
    pixels = numpy.empty((count, SIZE, SIZE, 3), numpy.uint8)
    tokens, learned = numpy.zeros((count, WIDTH), numpy.int16), numpy.zeros((count, WIDTH), numpy.int8)
    for row in range(count):
        image, asked = pictures.picture(rng)
        rng.shuffle(asked)
        pixels[row] = pixels_of(image)
        ids, writes = conversation(tokenizer, asked)
        tokens[row, : len(ids)], learned[row, : len(ids)] = ids, writes
    return pixels, tokens, learned


def corpus(tokenizer, seed, count, processes):
    size = 2000
    jobs = [(tokenizer.to_str(), seed, number, size) for number in range(max(1, count // size))]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        parts = pool.map(shard, jobs, chunksize=1)
    return [numpy.concatenate(arrays) for arrays in zip(*parts)]


def config(tokenizer):
    vision = SiglipVisionConfig(
        hidden_size=128, intermediate_size=288, num_hidden_layers=4, num_attention_heads=4, image_size=SIZE,
        patch_size=PATCH, num_channels=3, layer_norm_eps=1e-6, hidden_act="gelu_pytorch_tanh", vision_use_head=False,
    )
    stop = [tokenizer.token_to_id(END), tokenizer.token_to_id(STOP)]
    text = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=160, intermediate_size=352, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=40, max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=True,
        bos_token_id=stop[1], eos_token_id=stop, pad_token_id=stop[1],
    )
    return LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=tokenizer.token_to_id(IMAGE), image_seq_length=IMAGE_TOKENS,
        projector_hidden_act="gelu", vision_feature_layer=-1, vision_feature_select_strategy="full", tie_word_embeddings=True,
    )


def rate_at(done, highest):
    """Warm-up over the first fiftieth, then a cosine down to a hundredth of the highest rate."""
    if done < 0.02:
        return highest * (done / 0.02)
    return highest * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (done - 0.02) / 0.98)))


def normalized(pixels):
    return pixels.permute(0, 3, 1, 2).float() / 127.5 - 1


def train(args, network, arrays, pad):
    pixels, tokens, learned = (torch.from_numpy(array).to(args.device) for array in arrays)
    gpu = args.device == "cuda"
    matrices = [weight for weight in network.parameters() if weight.dim() > 1]
    vectors = [weight for weight in network.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.98), fused=gpu)
    began, steps, step, order = time.time(), args.steps, 0, torch.empty(0, dtype=torch.long)
    while step < steps:
        if len(order) < args.batch:
            order = torch.randperm(len(pixels))
        rows, order = order[: args.batch].to(args.device), order[args.batch :]
        ids, writes = tokens[rows].long(), learned[rows]
        labels = torch.where(writes > 0, ids, -100)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step / steps, args.rate)
        with torch.autocast(args.device, torch.bfloat16, enabled=gpu):
            loss = network(input_ids=ids, pixel_values=normalized(pixels[rows]), labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step == 50 and args.seconds:
            began50 = time.time()
        if step == 150 and args.seconds:
            pace = (time.time() - began50) / 100
            steps = min(steps, step + int((args.seconds - (time.time() - began)) / pace))
            print(f"{pace * 1000:.1f} ms a step: {steps} steps", flush=True)
        if step % 500 == 0 or step == 20:
            print(f"step {step}/{steps} loss {loss.item():.4f} {time.time() - began:.0f}s", flush=True)
    return {"steps": steps, "train_seconds": round(time.time() - began)}


@torch.no_grad()
def score(network, tokenizer, device, count, seed):
    """The part of right answers about held-out pictures, by kind; with the weights as they are written."""
    import io

    end, shares = tokenizer.token_to_id(END), {}
    for kind in pictures.KINDS:
        cases = list(pictures.held_out(kind, count, seed))
        right = 0
        for at in range(0, count, 100):
            rows = cases[at : at + 100]
            images = [pixels_of(Image.open(io.BytesIO(png))) for png, _, _ in rows]
            pixels = normalized(torch.from_numpy(numpy.stack(images)).to(device))
            ids = [conversation(tokenizer, [(kind, question, "")])[0] for _, question, _ in rows]
            # An empty answer and its end: what is left is the prompt.
            ids = [row[: len(row) - 1 - row[::-1].index(end)] for row in ids]
            answers = [[] for _ in rows]
            for _ in range(8):
                longest = max(len(row) + len(answer) for row, answer in zip(ids, answers))
                whole = [row + answer for row, answer in zip(ids, answers)]
                padded = torch.tensor([row + [0] * (longest - len(row)) for row in whole], device=device)
                logits = network(input_ids=padded, pixel_values=pixels, use_cache=False).logits
                for row, answer in enumerate(answers):
                    answer.append(int(logits[row, len(whole[row]) - 1].argmax()))
            for (_, _, expected), answer in zip(rows, answers):
                text = tokenizer.decode(answer[: answer.index(end)] if end in answer else answer)
                right += text.strip() == expected
        shares[kind] = right / count
    return shares


def published(name):
    """The name of a weight in published checkpoints."""
    for new, old in [("model.language_model.", "language_model.model."), ("model.", ""), ("lm_head.", "language_model.lm_head.")]:
        if name.startswith(new):
            return old + name.removeprefix(new)
    return name


def written(settings):
    """The fields of a config that describe the model."""
    general = {"_name_or_path", "chunk_size_feed_forward", "dtype", "id2label", "is_encoder_decoder", "label2id", "output_attentions",
               "output_hidden_states", "pretraining_tp", "problem_type", "return_dict", "transformers_version", "use_cache"}
    nested = {key: written(value) if isinstance(value, dict) else value for key, value in settings.items() if key not in general}
    return {key: value for key, value in nested.items() if value is not None}


def write(folder, name, value):
    (folder / name).write_text(json.dumps(value, indent=2) + "\n")


def export(folder, network, tokenizer):
    folder.mkdir(parents=True, exist_ok=True)
    weights = {published(name): weight.to(torch.bfloat16).cpu().contiguous() for name, weight in network.state_dict().items() if "lm_head" not in name}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    settings = written(network.config.to_dict())
    settings["architectures"], settings["torch_dtype"] = ["LlavaForConditionalGeneration"], "bfloat16"
    write(folder, "config.json", settings)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
    write(folder, "tokenizer_config.json", {
        "bos_token": None, "add_bos_token": False, "eos_token": END, "pad_token": STOP, "model_max_length": 2048,
        "clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE,
    })
    stop = [tokenizer.token_to_id(END), tokenizer.token_to_id(STOP)]
    write(folder, "generation_config.json", {"do_sample": False, "eos_token_id": stop, "pad_token_id": stop[1]})
    write(folder, "preprocessor_config.json", {
        "image_processor_type": "SiglipImageProcessor", "processor_class": "LlavaProcessor", "do_resize": True, "resample": 3,
        "size": {"height": SIZE, "width": SIZE}, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    })
    write(folder, "processor_config.json", {"processor_class": "LlavaProcessor", "patch_size": PATCH, "vision_feature_select_strategy": "full", "image_token": IMAGE, "num_additional_image_tokens": 0})
    print({file.name: file.stat().st_size for file in sorted(folder.iterdir())}, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=300_000)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="of training, at most")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args, began = parser.parse_args(), time.time()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = train_tokenizer(args.seed)
    arrays = corpus(tokenizer, args.seed, args.pictures, max(1, min(32, (os.cpu_count() or 2) - 1)))
    print(f"{len(arrays[0])} pictures after {time.time() - began:.0f}s, longest {int((arrays[1] != 0).sum(1).max())}", flush=True)
    network = LlavaForConditionalGeneration(config(tokenizer)).to(args.device)
    report = {"pictures": len(arrays[0]), "batch": args.batch, "parameters": sum(weight.numel() for weight in network.parameters())}
    print(report, flush=True)
    report |= train(args, network, arrays, tokenizer.token_to_id(STOP))
    network.to(torch.bfloat16).float()
    export(args.to, network, tokenizer)
    report |= {"score": score(network, tokenizer, args.device, 400, 1), "seconds": round(time.time() - began)}
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
