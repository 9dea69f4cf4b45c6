"""Two adapters of the embedded model and what mlx-lm generates with them: `cargo xtask fixtures served-adapters` writes this folder.

`drift` is LoRA and `turn` is DoRA, with random matrices, of another rank and other layers each. golden.json has the text that
mlx-lm samples greedily for each prompt, without an adapter and with each, and by how much the best token leads at least.
"""

import json
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tuner.utils import linear_to_lora_layers

HERE = Path(__file__).parent
MODEL = HERE.parent.parent / "models" / "omnibus-mini"
PROMPTS = ["The bus stops at the", "A number of things"]
TOKENS = 24
# No answer has a special token, whose text would be left out.
SEED = 9
# Name, kind, layers, rank, scale.
ADAPTERS = [("drift", "lora", 3, 2, 6.0), ("turn", "dora", 2, 3, 4.0)]


def greedy(model, tokenizer, prompt):
    tokens = tokenizer.encode(prompt)
    cache, found, lead = make_prompt_cache(model), [], float("inf")
    logits = model(mx.array([tokens]), cache=cache)[0, -1]
    for _ in range(TOKENS):
        best = mx.argmax(logits).item()
        second = mx.max(mx.where(mx.arange(logits.size) == best, -mx.inf, logits)).item()
        lead = min(lead, logits[best].item() - second)
        found.append(best)
        logits = model(mx.array([[best]]), cache=cache)[0, -1]
    assert not set(found) & set(tokenizer.all_special_ids) and max(found) < 2039, "choose another seed"
    return dict(prompt=prompt, text=tokenizer.decode(found), least_lead=round(lead, 4))


def adapted(kind, layers, rank, scale):
    model, _ = load(str(MODEL))
    parameters = dict(rank=rank, scale=scale, dropout=0.0)
    linear_to_lora_layers(model, layers, parameters, use_dora=kind == "dora")
    is_own = lambda path: path.endswith((".lora_a", ".lora_b", ".m"))

    def value(path, array):
        if path.endswith(".m"):
            return array * (1 + 0.1 * mx.random.normal(array.shape))
        return 0.1 * mx.random.normal(array.shape) if is_own(path) else array

    model.update(tree_map_with_path(value, model.parameters()))
    tensors = {name: array for name, array in tree_flatten(model.parameters()) if is_own(name)}
    return model, tensors, dict(fine_tune_type=kind, num_layers=layers, lora_parameters=parameters)


def main():
    mx.set_default_device(mx.cpu)
    mx.random.seed(SEED)
    base, tokenizer = load(str(MODEL))
    golden = {"": [greedy(base, tokenizer, prompt) for prompt in PROMPTS]}
    for name, kind, layers, rank, scale in ADAPTERS:
        model, tensors, config = adapted(kind, layers, rank, scale)
        (HERE / name).mkdir(exist_ok=True)
        mx.save_safetensors(str(HERE / name / "adapters.safetensors"), tensors)
        (HERE / name / "adapter_config.json").write_text(json.dumps(config) + "\n")
        golden[name] = [greedy(model, tokenizer, prompt) for prompt in PROMPTS]
    for name, answers in golden.items():
        print(f"{name:6} leads {[answer['least_lead'] for answer in answers]}", [answer["text"] for answer in answers])
    (HERE / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
