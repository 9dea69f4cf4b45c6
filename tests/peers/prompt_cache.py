#!/usr/bin/env python3
"""Compares prompt cache files with mlx-lm's, both ways: each program continues the other's file.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo build --release && python3 tests/peers/prompt_cache.py

Uses the embedded model's directory. Fails if anything differs.
"""

import argparse
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROMPT, QUESTION = "My name is Ada and I live in Paris. The sum of two and three is", " what? Tell me."
TOKENS = 24
# Of the largest key or value.
TOLERANCE = 1e-4


def omnibus(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Peer:
    """mlx-lm with the same model."""

    def __init__(self, directory):
        import mlx.core as mx
        from mlx_lm import load

        mx.set_default_device(mx.cpu)
        self.mx = mx
        self.model, self.tokenizer = load(str(directory))

    def render(self, text, **how):
        return self.tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, **how)

    def tokens(self, text):
        return self.mx.array(self.tokenizer.encode(text, add_special_tokens=False))

    def compute(self):
        """A cache of the prompt, as `mlx_lm.cache_prompt` makes it."""
        from mlx_lm.generate import generate_step
        from mlx_lm.models.cache import make_prompt_cache

        cache = make_prompt_cache(self.model)
        text = self.render(PROMPT, add_generation_prompt=False, continue_final_message=True)
        for _ in generate_step(self.tokens(text), self.model, max_tokens=0, prompt_cache=cache):
            pass
        return cache

    def answer(self, cache):
        """Continues a cache as `mlx_lm.generate` does."""
        from mlx_lm.generate import generate_step

        begins = self.render("<query>", add_generation_prompt=True).index("<query>")
        rest = self.tokens(self.render(QUESTION, add_generation_prompt=True)[begins:])
        answer = []
        for token, _ in generate_step(rest, self.model, max_tokens=TOKENS, prompt_cache=cache):
            if token in self.tokenizer.eos_token_ids:
                break
            answer.append(token)
        return self.tokenizer.decode(answer).strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--omnibus", default=HERE.parent.parent / "target/release/omnibus", type=pathlib.Path)
    parser.add_argument("--model", default=HERE.parent.parent / "crates/cli/models/omnibus-mini", type=pathlib.Path)
    arguments = parser.parse_args()
    from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache

    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = f"{folder}/ours.safetensors", f"{folder}/theirs.safetensors"
        common = ["-m", arguments.model]
        resume = [*common, "-p", QUESTION, "--temp", "0", "--max-tokens", str(TOKENS)]
        omnibus(arguments.omnibus, "cache", "prompt", *common, "-p", PROMPT, "--prompt-cache-file", ours)
        peer = Peer(arguments.model)
        made = peer.compute()
        save_prompt_cache(theirs, made, {"model": str(arguments.model), "tokenizer_config": "{}"})

        read = load_prompt_cache(ours)
        assert [layer.offset for layer in read] == [layer.offset for layer in made], "as many tokens"
        for layer, (a, b) in enumerate(zip(read, made)):
            for mine, other in zip(a.keys_and_values(), b.keys_and_values()):
                apart = float(abs(mine - other).max() / abs(other).max())
                assert apart < TOLERANCE, f"layer {layer} is {apart} apart"

        whole = [*common, "-p", PROMPT + QUESTION, "--temp", "0", "--max-tokens", str(TOKENS)]
        answers = {
            "omnibus, no file": omnibus(arguments.omnibus, "generate", *whole),
            "mlx-lm from its own": peer.answer(load_prompt_cache(theirs)),
            "mlx-lm from omnibus's": peer.answer(read),
            "omnibus from its own": omnibus(arguments.omnibus, "generate", *resume, "--prompt-cache-file", ours),
            "omnibus from mlx-lm's": omnibus(arguments.omnibus, "generate", *resume, "--prompt-cache-file", theirs),
        }
    for name, answer in answers.items():
        print(f"{name}: {answer}")
    assert len(set(answers.values())) == 1, "all answers are equal"


if __name__ == "__main__":
    main()
