"""Blocks of each type with the numbers that llama.cpp's own Python package reads from them, and the grids of IQ types: writes
blocks.json and grids.rs.

    python3 -m venv v && v/bin/pip install gguf numpy && v/bin/python blocks.py blocks.json ../src/blocks/grids.rs
"""
import json
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf import quants
from gguf.quants import dequantize

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4", "IQ4_NL",
         "IQ4_XS", "TQ1_0", "TQ2_0", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "NVFP4"]
# Where float16 numbers are in a block.
FLOATS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": [], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52],
          "TQ2_0": [64], "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
          "NVFP4": []}
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
    if name == "NVFP4":  # scales without a sign; the last one is what stands for zero
        blocks[:, :4] = random.integers(40, 72, (len(blocks), 4))
        blocks[-1, 3] = 0x7F
    if name == "TQ1_0":  # five digits of base three in a byte, as it is written
        digits = random.integers(0, 3, (len(blocks), elements)).astype(np.float32) - 1
        blocks[:, :52] = quants.TQ1_0.quantize_blocks(digits)[:, :52]
    if name == "TQ2_0":
        digits = random.integers(0, 3, (len(blocks), elements)).astype(np.float32) - 1
        blocks[:, :64] = quants.TQ2_0.quantize_blocks(digits)[:, :64]
    if name == "IQ1_M":  # the digits of its float16 are the highest of four numbers
        bits = int(np.float16(0.01).view(np.uint16))
        for i in range(4):
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (bits >> 4 * i & 15) << 4
    numbers = dequantize(blocks.reshape(1, -1), kind).astype("<f4")
    cases.append({"kind": name, "number": int(kind), "bytes": blocks.tobytes().hex(), "floats": numbers.tobytes().hex()})
json.dump(cases, open(sys.argv[1], "w"), indent=0)

GRIDS = [("IQ2_XXS", 2), ("IQ2_XS", 2), ("IQ2_S", 2), ("IQ3_XXS", 3), ("IQ3_S", 3), ("IQ1_S", 2)]
with open(sys.argv[2], "w") as out:
    out.write("//! Grids of IQ types, made by `tests/blocks.py`: eight codes of 2 bits in a number, or four of 3 bits, the first one low.\n//!\n")
    out.write("//! Source: ggml `ggml-common.h`, as the package `gguf` has it.\n\n")
    for name, bits in GRIDS:
        quants_of = getattr(quants, name)
        quants_of.init_grid()
        rows = quants_of.grid.reshape(quants_of.grid_shape)
        codes = [[quants_of.grid_map.index(int(value)) for value in row] for row in rows]
        numbers = [sum(code << bits * i for i, code in enumerate(row)) for row in codes]
        out.write(f"/// Of {name}.\n#[rustfmt::skip]\npub const {name}: [u16; {len(numbers)}] = [\n")
        for i in range(0, len(numbers), 18):
            out.write("    " + " ".join(f"{number}," for number in numbers[i:i + 18]) + "\n")
        out.write("];\n\n")
