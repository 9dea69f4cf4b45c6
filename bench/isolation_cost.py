#!/usr/bin/env python3
"""What it costs that the engine is a process of its own: tokens a second with it and with `--in-process`.

    cargo xtask bench isolation_cost [--streams 16] [--tokens 256] [--rounds 5] [-- SERVE-ARGUMENTS…]

Both servers run at the same time and take turns, so that what else the machine does meets both.
"""

import argparse
import statistics

from kill_engine import Server, run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("arguments", nargs="*", help="for `omnibus serve`")
    options = parser.parse_args()
    servers = {"own process": Server(options.arguments), "in process": Server(["--in-process", *options.arguments])}
    rates = {name: [] for name in servers}
    for server in servers.values():
        run(server, options, lambda: None)
    for turn in range(options.rounds):
        order = list(servers.items())
        for name, server in order if turn % 2 else reversed(order):
            _, seconds = run(server, options, lambda: None)
            rates[name].append(options.streams * options.tokens / seconds)
    for server in servers.values():
        server.stop()
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name}: {medians[name]:8.1f} tokens/s ({min(values):.1f} to {max(values):.1f})")
    print(f"cost: {100 * (1 - medians['own process'] / medians['in process']):.1f} %")


if __name__ == "__main__":
    main()
