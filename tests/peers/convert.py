"""Conversions beside mlx-lm's: equal tensors, and each loads what the other wrote.

    pip install "mlx[cpu]==0.32.4" mlx-lm==0.32.2
    cargo build && python tests/peers/convert.py [--omnibus target/debug/omnibus] [--only TYPE ...]

For every architecture with a fixture, random weights are written as a checkpoint and converted by both, in several ways.
Then the perplexity of the embedded model is computed by both, on the same tokens.
"""

import argparse
import contextlib
import copy
import io
import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.convert import QUANT_RECIPES, mixed_quant_predicate_builder
from mlx_lm.perplexity import eval_ppl
from mlx_lm.utils import _get_classes, dequantize_model, load_model, quantize_model, save_config, save_model

FIXTURES = Path(__file__).parents[2] / "crates/model/tests/fixtures"
# Flags of ours, and arguments of mlx-lm's.
WAYS = {
    "as stored": ([], {}),
    "float16": (["--dtype", "float16"], dict(dtype="float16")),
    "4 bits": (["-q", "--q-bits", "4", "--q-group-size", "32"], dict(bits=4, group=32)),
    "6 bits, bfloat16": (["-q", "--q-bits", "6", "--q-group-size", "32", "--dtype", "bfloat16"],
                         dict(bits=6, group=32, dtype="bfloat16")),
    "mxfp4": (["-q", "--q-mode", "mxfp4"], dict(mode="mxfp4")),
    "mixed_3_6": (["-q", "--q-group-size", "32", "--quant-predicate", "mixed_3_6"],
                  dict(group=32, recipe="mixed_3_6")),
}
# All modes and numbers, for one architecture.
MODES = {f"{bits} bits, groups of {group}": (["-q", "--q-bits", str(bits), "--q-group-size", str(group)],
                                            dict(bits=bits, group=group))
         for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64)}
MODES |= {mode: (["-q", "--q-mode", mode], dict(mode=mode)) for mode in ("mxfp4", "mxfp8", "nvfp4")}
MODES |= {recipe: (["-q", "--quant-predicate", recipe, "--q-group-size", "64"], dict(group=64, recipe=recipe))
          for recipe in QUANT_RECIPES}
# Heads that mlx-lm normalizes even when they are packed: it divides the codes by their length, so its floats are none.
SPOILED_WHEN_PACKED = ["bailing_moe.bias"]


def write_random(directory, config):
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(copy.deepcopy(config)))

    def values(path, value):
        if path.endswith(".signs"):
            return mx.where(mx.random.uniform(shape=value.shape) < 0.5, -1.0, 1.0)
        if not mx.issubdtype(value.dtype, mx.floating):
            return mx.random.randint(0, 255, value.shape).astype(value.dtype)
        return mx.random.normal(value.shape).astype(value.dtype) * 0.2

    model.update(tree_map_with_path(values, model.parameters()))
    directory.mkdir()
    save_model(directory, model)
    save_config(dict(config), directory / "config.json")


def convert_theirs(source, target, bits=None, group=None, mode="affine", dtype=None, recipe=None, dequantize=False):
    """mlx-lm's `convert` without a tokenizer."""
    model, config = load_model(source, lazy=True)
    predicate = recipe and mixed_quant_predicate_builder(recipe, model, group)
    dtype = dtype or config.get("torch_dtype")
    if dtype:
        cast = getattr(model, "cast_predicate", lambda _: True)
        model.update(tree_map_with_path(
            lambda k, v: v.astype(getattr(mx, dtype)) if cast(k) and mx.issubdtype(v.dtype, mx.floating) else v,
            model.parameters()))
    if dequantize:
        config.pop("quantization", None)
        config.pop("quantization_config", None)
        model = dequantize_model(model)
    elif bits or mode != "affine" or recipe:
        with contextlib.redirect_stdout(io.StringIO()):
            model, config = quantize_model(model, config, group, bits, mode=mode, quant_predicate=predicate)
    target.mkdir()
    save_model(target, model)
    save_config(config, target / "config.json")


def tensors(directory):
    found = {}
    for file in directory.glob("*.safetensors"):
        found |= mx.load(str(file))
    return found


def differences(ours, theirs):
    a, b = tensors(ours), tensors(theirs)
    if a.keys() != b.keys():
        return f"only ours {sorted(a.keys() - b.keys())[:3]}, only theirs {sorted(b.keys() - a.keys())[:3]}"
    for name in a:
        x, y = a[name], b[name]
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{name} is {x.dtype} {x.shape}, theirs {y.dtype} {y.shape}"
        if not mx.array_equal(x.view(mx.uint8) if x.ndim else x, y.view(mx.uint8) if y.ndim else y).item():
            return f"{name} has other numbers"
    return None


def run(omnibus, *arguments):
    return subprocess.run([omnibus, *arguments], capture_output=True, text=True)


def compare(omnibus, folder, name, source, ways):
    problems = []
    for number, (way, (flags, asked)) in enumerate(ways.items()):
        theirs_at, ours_at = folder / f"{name}.theirs{number}", folder / f"{name}.ours{number}"
        try:
            convert_theirs(source, theirs_at, **asked)
            load_model(theirs_at)
        except Exception as error:  # mlx-lm cannot; that is no difference.
            print(f"  {name}, {way}: mlx-lm: {type(error).__name__}: {str(error)[:80]}")
            continue
        done = run(omnibus, "convert", "--hf-path", str(source), "--mlx-path", str(ours_at), *flags)
        if done.returncode != 0:
            problems.append(f"{way}: {done.stderr.strip()[:200]}")
            continue
        different = differences(ours_at, theirs_at)
        if different:
            problems.append(f"{way}: {different}")
            continue
        try:
            load_model(ours_at)
        except Exception as error:
            problems.append(f"{way}: mlx-lm cannot load ours: {str(error)[:150]}")
        # Theirs, by us, to floats: both must give the same.
        if ("bits" in asked or "mode" in asked) and name not in SPOILED_WHEN_PACKED:
            plain, other = folder / f"{name}.plain{number}", folder / f"{name}.other{number}"
            convert_theirs(theirs_at, plain, dequantize=True)
            done = run(omnibus, "convert", "--hf-path", str(theirs_at), "--mlx-path", str(other), "-d")
            different = done.stderr.strip()[:200] if done.returncode else differences(other, plain)
            if different:
                problems.append(f"{way}, to floats: {different}")
    return problems


def compare_perplexity(omnibus, folder):
    model_at = folder / "embedded"
    done = run(omnibus, "convert", "--hf-path", "omnibus-mini", "--mlx-path", str(model_at))
    if done.returncode != 0:
        return [done.stderr.strip()]
    model, config = load_model(model_at)
    mx.random.seed(5)
    data = mx.random.randint(1, config["vocab_size"], (6, 64))
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps(data.flatten().tolist()))
    with contextlib.redirect_stdout(io.StringIO()):
        want, error = eval_ppl(model, data)
    done = run(omnibus, "perplexity", str(model_at), "--data-path", str(tokens),
               "--sequence-length", "64", "--json")
    if done.returncode != 0:
        return [done.stderr.strip()]
    found = json.loads(done.stdout)[0]
    print(f"perplexity {found['perplexity']:.4f} ± {found['standard_error']:.4f}, mlx-lm {want:.4f} ± {error:.4f}")
    near = abs(found["perplexity"] / want - 1) < 2e-4 and abs(found["standard_error"] / error - 1) < 2e-3
    return [] if near else ["perplexity differs"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--omnibus", default="target/debug/omnibus")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    mx.random.seed(1)
    sys.modules["hf_olmo"] = types.ModuleType("hf_olmo")
    omnibus, equal, wrong = str(Path(arguments.omnibus).resolve()), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for fixture in sorted(FIXTURES.iterdir()):
            name = fixture.name
            if not fixture.is_dir() or name.endswith(".hf") or ".q-" in name:
                continue
            if arguments.only and name not in arguments.only:
                continue
            config = json.loads((fixture / "config.json").read_text())
            try:
                write_random(folder / name, config)
            except Exception as error:
                print(f"  {name}: mlx-lm: {type(error).__name__}: {str(error)[:80]}")
                continue
            ways = WAYS | MODES if name == "llama" else WAYS
            problems = compare(omnibus, folder, name, folder / name, ways)
            equal, wrong = equal + (not problems), wrong + bool(problems)
            for problem in problems:
                print(f"{name}, {problem}")
        if not arguments.only:
            for problem in compare_perplexity(omnibus, folder):
                wrong += 1
                print(problem)
    print(f"{equal} architectures convert as mlx-lm does, {wrong} do not")
    sys.exit(wrong > 0)


main()
