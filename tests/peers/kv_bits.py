#!/usr/bin/env python3
"""Compares the quantized KV cache with mlx-lm's: log-probabilities with `--kv-bits` and `--quantized-kv-start`.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo build --release && python3 tests/peers/kv_bits.py

Uses the embedded model's directory. Fails if anything differs.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))
import serving  # noqa: E402

TEXT = "My name is Ada and I live in Paris. The sum of two and three is five. Count to ten: one, two, three, four."
# How many tokens attend to floats: one, some, all.
STARTS = [1, 20, 40, 1000]
# Of a log-probability. The order of sums differs, so that a value halfway may round the other way.
TOLERANCE = 2e-3


class Peer:
    """mlx-lm with the same model."""

    def __init__(self, directory):
        import mlx.core as mx
        from mlx_lm import load

        mx.set_default_device(mx.cpu)
        self.mx = mx
        self.model, tokenizer = load(str(directory))
        self.tokens = tokenizer.encode(TEXT, add_special_tokens=False)

    def logprobs(self, **bits):
        """The log-probability of each token, in steps of one token: mlx-lm checks a cache's length between steps."""
        from mlx_lm.generate import maybe_quantize_kv_cache
        from mlx_lm.models.cache import make_prompt_cache

        mx, cache, found = self.mx, make_prompt_cache(self.model), []
        for token, following in zip(self.tokens, self.tokens[1:]):
            logits = self.model(mx.array([[token]]), cache=cache)[0, -1].astype(mx.float32)
            found.append(float(logits[following] - mx.logsumexp(logits)))
            if bits:
                maybe_quantize_kv_cache(cache, **bits)
        return found


def logprobs(arguments, tokens, *flags):
    server = serving.omnibus(arguments.omnibus, arguments.model, *flags)
    body = dict(model=server.model, prompt=tokens, max_tokens=1, temperature=0, logprobs=1, echo=True)
    with tempfile.TemporaryFile() as log, serving.serving(server, log) as running:
        request = urllib.request.Request(
            f"{running.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            [choice] = json.load(answer)["choices"]
    # The first token has no log-probability, and the last entry is the generated token.
    return choice["logprobs"]["token_logprobs"][1 : len(tokens)]


def apart(found, wanted):
    return max(abs(one - other) for one, other in zip(found, wanted, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--omnibus", default=HERE.parent.parent / "target/release/omnibus", type=pathlib.Path)
    parser.add_argument("--model", default=HERE.parent.parent / "crates/cli/models/omnibus-mini", type=pathlib.Path)
    arguments = parser.parse_args()
    peer = Peer(arguments.model)
    floats = peer.logprobs()
    failed = []
    for bits in (4, 8):
        for start in STARTS:
            theirs = peer.logprobs(kv_bits=bits, kv_group_size=64, quantized_kv_start=start)
            ours = logprobs(arguments, peer.tokens, "--kv-bits", bits, "--quantized-kv-start", start)
            exact = apart(ours[:start], floats[:start])
            off, moved = apart(ours, theirs), apart(theirs, floats)
            print(
                f"{bits} bits from {start} of {len(peer.tokens)} tokens: {off:.5f} from mlx-lm's, "
                f"which are {moved:.5f} from floats; the first are {exact:.5f} from floats"
            )
            is_significant = moved > 10 * TOLERANCE or start > len(peer.tokens)
            if max(exact, off) > TOLERANCE or not is_significant:
                failed.append((bits, start))
    assert not failed, f"these differ from mlx-lm, or are not significant: {failed}"


if __name__ == "__main__":
    main()
