"""Lines of a family beside those of mlx-lm's module for the same architectures.

    pip install mlx-lm==0.32.2
    python tests/peers/family_lines.py

Ours: a file below crates/model/src/families that reads some `model_type`. What several families share (the other files there,
blocks, mixers, MLPs) is counted apart, and so is what mlx-lm's modules import from each other.
"""

import re
import statistics
from pathlib import Path

import mlx_lm.models
from mlx_lm.utils import MODEL_REMAPPING

ROOT = Path(__file__).parents[2] / "crates/model/src"
THEIRS = Path(mlx_lm.models.__path__[0])


def lines(path):
    return len(path.read_text().splitlines())


def summary(counts):
    name, largest = max(counts.items(), key=lambda item: item[1])
    return f"{len(counts)} files, median {statistics.median(counts.values()):g}, largest {largest} ({name}), all {sum(counts.values())}"


def main():
    rows = re.findall(r'model_type: "([^"]+)",\s*read: (\w+)::', (ROOT / "families.rs").read_text())
    ours = {name: lines(ROOT / f"families/{name}.rs") for _, name in rows}
    modules = {MODEL_REMAPPING.get(model_type, model_type) for model_type, _ in rows}
    theirs = {name: lines(THEIRS / f"{name}.py") for name in modules if (THEIRS / f"{name}.py").is_file()}
    shared = {path.stem: lines(path) for path in (ROOT / "families").glob("*.rs") if path.stem not in ours}
    print(f"{len(rows)} architectures")
    print(f"ours:   {summary(ours)}")
    print(f"shared: {summary(shared)}")
    print(f"mlx-lm: {summary(theirs)}")


main()
