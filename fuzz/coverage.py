#!/usr/bin/env python3
"""Edges that a corpus reaches, by decoder: a table of the crates whose functions the target runs.

    fuzz/target/x86_64-unknown-linux-gnu/release/sound -runs=0 -print_coverage=1 fuzz/corpus/sound 2>&1 | python3 fuzz/coverage.py

The symbolizer has to be found: ASAN_SYMBOLIZER_PATH, or llvm-symbolizer on the search path.
"""

import collections
import re
import sys

FUNCTION = re.compile(r"^(?:UN)?COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) .* (\S+?):\d+$")
# Crates by which decoders read: a path of a registry or of ours ends with these.
CRATE = re.compile(r"/(?:registry/src/[^/]+/([a-z0-9_-]+?)-\d[^/]*|crates/(media)/src/(.+?)\.rs)(?:/|$)")
OTHERS = ("libfuzzer-sys",)


def main():
    reached, edges = collections.Counter(), collections.Counter()
    for line in sys.stdin:
        found = FUNCTION.match(line.strip())
        crate = found and CRATE.search(found[3])
        if not crate:
            continue
        name = crate[1] or f"omnibus-media: {crate[3]}"
        reached[name] += int(found[1])
        edges[name] += int(found[2])
    print("| crate or file | edges reached | of |\n| --- | ---: | ---: |")
    for name in sorted(edges, key=lambda name: -reached[name]):
        if name not in OTHERS and reached[name]:
            print(f"| {name} | {reached[name]:,} | {edges[name]:,} ({reached[name] / edges[name]:.0%}) |")


if __name__ == "__main__":
    main()
