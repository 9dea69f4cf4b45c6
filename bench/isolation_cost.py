#!/usr/bin/env python3
"""Cost of engine isolation: tokens/s with the engine in a child process and with `--in-process`.

    cargo xtask bench isolation_cost [--streams 16] [--tokens 256] [--rounds 15] [-- SERVE-ARGUMENTS…]

Both servers run at the same time and are measured in turns, so that other load on the machine affects both. CPU
seconds are printed as well: they do not depend on other load.
"""

import argparse
import statistics

import serving
from kill_engine import Server, run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("arguments", nargs="*", help="for `omnibus serve`")
    options = parser.parse_args()
    servers = {"own process": Server(options.arguments), "in process": Server(["--in-process", *options.arguments])}
    rates = {name: [] for name in servers}
    for server in servers.values():
        run(server, options, lambda: None)
    before = {name: serving.cpu_seconds(server.process.pid) for name, server in servers.items()}
    for turn in range(options.rounds):
        order = list(servers.items())
        for name, server in order if turn % 2 else reversed(order):
            _, seconds = run(server, options, lambda: None)
            rates[name].append(options.streams * options.tokens / seconds)
    busy = {name: serving.cpu_seconds(server.process.pid) - before[name] for name, server in servers.items()}
    for server in servers.values():
        server.stop()
    for name, values in rates.items():
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(f"{name}: {statistics.median(values):8.1f} tokens/s ({spread}), {busy[name]:.1f} CPU seconds")
    costs = [100 * (1 - own / within) for own, within in zip(*rates.values())]
    low, median, high = statistics.quantiles(costs, n=4)
    more = 100 * (busy["own process"] / busy["in process"] - 1)
    print(f"cost: {median:.1f} % (half of the rounds: {low:.1f} to {high:.1f} %), {more:.1f} % more CPU time")


if __name__ == "__main__":
    main()
