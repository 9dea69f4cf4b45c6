"""Lines of a family beside those of mlx-lm's module for the same architectures.

    pip install mlx-lm==0.32.2
    python tests/peers/family_lines.py

Ours: a file below crates/model/src/families that reads some `model_type`. What several families share (the other files there,
blocks, mixers, MLPs) is counted apart, and so is what mlx-lm's modules import from each other. A line is duplicated if it
belongs to six or more equal lines in a row that another file has, too; blank lines, comments and imports are not counted.
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


def code(path):
    """Lines that compute something."""
    stripped = [line.strip() for line in path.read_text().splitlines()]
    return [line for line in stripped if line and not line.startswith(("//", "#", "use ", "import ", "from "))]


def duplicated(paths, run=6):
    """Lines in runs that another file has, too, and all lines."""
    files = {path: code(path) for path in paths}
    seen = {}
    for path, found in files.items():
        for at in range(len(found) - run + 1):
            seen.setdefault(tuple(found[at:at + run]), set()).add(path)
    copies = {(path, at + offset) for path, found in files.items() for at in range(len(found) - run + 1)
              if len(seen[tuple(found[at:at + run])]) > 1 for offset in range(run)}
    whole = sum(len(found) for found in files.values())
    return f"{len(copies)} of {whole} lines duplicated ({len(copies) / whole:.1%})"


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
    print(f"ours:   {duplicated((ROOT / 'families').glob('*.rs'))}")
    print(f"mlx-lm: {duplicated(THEIRS / f'{name}.py' for name in theirs)}")


main()
