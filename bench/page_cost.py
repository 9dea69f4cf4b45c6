#!/usr/bin/env python3
"""Cost of the page's engine view and of the energy meter: tokens/s and CPU seconds at many streams.

    cargo xtask bench page_cost [--streams 64] [--tokens 64] [--rounds 10] [-- SERVE-ARGUMENTS…]

One server is measured in turns with the engine view closed and open: open, a client sends each second the requests that
the view sends. A second server, with `--power-model`, shows what the meter's thread and the sharing of energy by rows cost. CPU seconds
are those of the server's processes: they do not depend on other load on the machine.
"""

import argparse
import statistics
import threading
import urllib.request

import serving
from kill_engine import Server, run

# The requests of `engine.js`, each second.
PATHS = ("/v1/status", "/v1/models")


def watch(server, stop):
    """The engine view until `stop` is set."""
    while not stop.is_set():
        for path in PATHS:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as reply:
                reply.read()
        stop.wait(1)


def measured(server, options, is_watched):
    """Tokens per second and CPU seconds of one round."""
    stop = threading.Event()
    viewer = threading.Thread(target=watch, args=(server, stop))
    before = serving.cpu_seconds(server.process.pid)
    if is_watched:
        viewer.start()
    _, seconds = run(server, options, lambda: None)
    stop.set()
    if is_watched:
        viewer.join()
    return options.streams * options.tokens / seconds, serving.cpu_seconds(server.process.pid) - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("arguments", nargs="*", help="for `omnibus serve`")
    options = parser.parse_args()
    plain, metered = Server(options.arguments), Server(["--power-model", "10", *options.arguments])
    cases = {"page closed": (plain, False), "page open": (plain, True), "meter on": (metered, False)}
    for server in (plain, metered):
        run(server, options, lambda: None)
    found = {name: [] for name in cases}
    for turn in range(options.rounds):
        order = list(cases.items())
        for name, (server, is_watched) in order if turn % 2 else reversed(order):
            found[name].append(measured(server, options, is_watched))
    for server in (plain, metered):
        server.stop()
    base = statistics.median(busy for _, busy in found["page closed"])
    for name, values in found.items():
        rates, busy = zip(*values)
        more = 100 * (statistics.median(busy) / base - 1)
        spread = f"{min(busy):.2f} to {max(busy):.2f}"
        print(f"{name}: {statistics.median(rates):.1f} tokens/s, {statistics.median(busy):.2f} CPU seconds ({spread}), {more:+.2f} %")


if __name__ == "__main__":
    main()
