#!/usr/bin/env python3
"""Cost of clients that watch the engine view, and of the energy meter: CPU seconds and tokens/s at many streams.

    cargo xtask bench page_cost [--streams 64] [--tokens 64] [--rounds 20] [--watchers 1] [-- SERVE-ARGUMENTS…]

One server is measured in turns without and with clients of `/v1/status/stream`, which is what the engine view reads. A second
server has a meter (`--power-model`) and is measured against the first without a client. Each round has every case once, in an order
that turns. A line is the mean of the rounds' ratios to the first case, with its 95 % confidence interval (Student's t).
CPU seconds are those of the server's processes, so they depend little on other load; tokens/s are as a client sees them. The loop's
own time is what it spends on planning, building and recording a step, without its wait for the device: what a watcher adds to that is
its cost, beside the whole time of a step. The meter's thread is named in CPU seconds of each second.
"""

import argparse
import dataclasses
import http.client
import math
import statistics
import threading

import serving
from kill_engine import Server, run

# Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond, those of the normal distribution.
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 12: 2.18, 15: 2.13, 20: 2.09, 30: 2.04}


class Watcher(threading.Thread):
    """A client of the stream, from its first event until it is closed."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
        self.connection.request("GET", "/v1/status/stream")
        self.reply = self.connection.getresponse()
        self.steps = self.lost = self.bytes = 0
        self.take(self.reply.readline())
        self.start()

    def take(self, line):
        self.bytes += len(line)
        if b'"type":"steps"' in line:
            # Each step has one budget.
            self.steps += line.count(b'"budget"')
            self.lost += int(line.partition(b'"lost":')[2].split(b",")[0])

    def run(self):
        try:
            for line in self.reply:
                self.take(line)
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # It is closed while it is read.

    def close(self):
        self.connection.sock and self.connection.sock.shutdown(2)
        self.join(10)


METER = "omnibus-power"


@dataclasses.dataclass
class Round:
    """Tokens per second, CPU seconds, the meter's share of a core, microseconds of a step: the loop's own, and all."""

    rate: float
    busy: float
    meter: float
    own_us: float
    step_us: float
    seen: tuple


def loop_times(server):
    """Of the engine's loop so far: its steps, its own seconds, and those of the device."""
    engine = server.engine()
    return engine["steps_total"], engine["host_seconds_total"], engine["dispatch_seconds_total"] + engine["wait_seconds_total"]


def measured(server, options, watchers):
    """One round, with so many clients that watch."""
    watching = [Watcher(server) for _ in range(watchers)]
    process = server.process.pid
    before, meter, times = serving.cpu_seconds(process), serving.thread_seconds(process, METER), loop_times(server)
    _, seconds = run(server, options, lambda: None)
    busy, meter = serving.cpu_seconds(process) - before, serving.thread_seconds(process, METER) - meter
    steps, host, others = (now - earlier for now, earlier in zip(loop_times(server), times))
    for watcher in watching:
        watcher.close()
    seen, lost, size = (sum(getattr(one, name) for one in watching) for name in ("steps", "lost", "bytes"))
    return Round(
        rate=options.streams * options.tokens / seconds,
        busy=busy,
        meter=meter / seconds,
        own_us=1e6 * host / steps,
        step_us=1e6 * (host + others) / steps,
        seen=(seen, lost, size / max(1, watchers) / seconds),
    )


def interval(values):
    """The mean and half of its 95 % confidence interval."""
    if len(values) < 2:
        return statistics.mean(values), math.inf
    quantile = next((T95[known] for known in sorted(T95, reverse=True) if known <= len(values) - 1), T95[1])
    return statistics.mean(values), quantile * statistics.stdev(values) / math.sqrt(len(values))


def percent(values, base):
    """The mean change of paired values in percent, as text."""
    mean, half = interval([100 * (value / of_base - 1) for value, of_base in zip(values, base)])
    return f"{mean:+.2f} ± {half:.2f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--watchers", type=int, default=1)
    parser.add_argument("arguments", nargs="*", help="for `omnibus serve`")
    options = parser.parse_args()
    plain, metered = Server(options.arguments), Server(["--power-model", "10", *options.arguments])
    cases = {"no watcher": (plain, 0), f"{options.watchers} watching": (plain, options.watchers), "meter on": (metered, 0)}
    for server in (plain, metered):
        run(server, options, lambda: None)
    found = {name: [] for name in cases}
    order = list(cases.items())
    for _ in range(options.rounds):
        for name, (server, watchers) in order:
            found[name].append(measured(server, options, watchers))
        order.append(order.pop(0))
    for server in (plain, metered):
        server.stop()
    base = next(iter(found.values()))
    of = lambda rounds, name: [getattr(each, name) for each in rounds]
    for name, rounds in found.items():
        own, step = of(rounds, "own_us"), statistics.mean(of(rounds, "step_us"))
        more, half = interval([each - other for each, other in zip(own, of(base, "own_us"))])
        print(
            f"{name}: {statistics.mean(of(rounds, 'rate')):.1f} tokens/s ({percent(of(rounds, 'rate'), of(base, 'rate'))}), "
            f"{statistics.mean(of(rounds, 'busy')):.2f} CPU seconds a round ({percent(of(rounds, 'busy'), of(base, 'busy'))}); "
            f"of a step of {step:.0f} us the loop's own {statistics.mean(own):.1f} ({more:+.2f} ± {half:.2f} us, "
            f"{100 * more / step:+.3f} ± {100 * half / step:.3f} % of the step); the meter {100 * statistics.mean(of(rounds, 'meter')):.3f} % of a core"
        )
        seen, lost, size = map(sum, zip(*of(rounds, "seen")))
        if seen:
            print(f"  {seen} steps seen, {lost} lost, {size / len(rounds) / 1024:.1f} KiB/s a client")


if __name__ == "__main__":
    main()
