"""Blocks of each type with the numbers that llama.cpp's own Python package reads from them: writes blocks.json.

    python3 -m venv v && v/bin/pip install gguf numpy && v/bin/python blocks.py blocks.json
"""
import json
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]
# Where float16 numbers are in a block.
FLOATS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": []}
random = np.random.default_rng(7)
cases = []
for name in TYPES:
    kind = T[name]
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (256 // elements, size), dtype=np.uint8)
    for at in FLOATS[name]:
        scale = random.uniform(0.001, 0.02, len(blocks)).astype(np.float16)
        blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:, 0] = random.integers(118, 130, len(blocks))
    numbers = dequantize(blocks.reshape(1, -1), kind).astype("<f4")
    cases.append({"kind": name, "number": int(kind), "bytes": blocks.tobytes().hex(), "floats": numbers.tobytes().hex()})
json.dump(cases, open(sys.argv[1], "w"), indent=0)
