"""The formulas of weights, pictures and sounds (../fixtures/README.md), for the scripts beside this file."""

import numpy as np

GOLDEN, WORD = 0x9E3779B97F4A7C15, (1 << 64) - 1


def splitmix(x):
    z = (x + GOLDEN) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def generated(seed, name, shape, center, scale):
    """The float32 tensor of a row of tensors.json."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & WORD
    with np.errstate(over="ignore"):
        z = np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(h ^ splitmix(seed))
        z = z + np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    unit = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    return (np.float32(center) + np.float32(scale) * unit).reshape(shape)


def expanded(rows):
    """Rows of tensors.json, one for each number in a name's braces."""
    for name, *rest in rows:
        if "{" not in name:
            yield name, rest
            continue
        head, tail = name.split("{", 1)
        numbers, tail = tail.split("}", 1)
        first, last = map(int, numbers.split(".."))
        yield from expanded([f"{head}{number}{tail}", *rest] for number in range(first, last + 1))


def picture(width, height, seed):
    """uint8 [height, width, 3]"""
    u = np.uint32
    y, x = np.mgrid[0:height, 0:width].astype(u)
    out = np.empty((height, width, 3), np.uint8)
    for c in range(3):
        ramp = ((x * u(3 + 2 * c + seed % 5) + y * u(7 - 2 * c + seed % 3)) >> u(1)) & u(127)
        check = (((x >> u(3)) ^ (y >> u(3)) ^ u(seed >> c)) & u(1)) * u(64)
        with np.errstate(over="ignore"):
            h = x * u(0x9E3779B1) + y * u(0x85EBCA77) + u((c + 3 * seed) * 0xC2B2AE3D & 0xFFFFFFFF)
            h = (h ^ (h >> u(15))) * u(0x2C1B3C6D)
        h = h ^ (h >> u(12))
        out[..., c] = (ramp + check + (h >> u(26))).astype(np.uint8)
    return out


def sound(samples, seed):
    """float32 [samples], at 16 kHz"""
    n = np.arange(samples, dtype=np.int64)
    triangle = np.abs(((n * (20 + seed % 7)) & 4095) - 2048) - 1024
    slow = np.abs(((n * 3) & 65535) - 32768) >> 3
    with np.errstate(over="ignore"):
        h = n.astype(np.uint32) * np.uint32(0x9E3779B1) + np.uint32(3 * seed * 0xC2B2AE3D & 0xFFFFFFFF)
        h = (h ^ (h >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    noise = ((h ^ (h >> np.uint32(12))) >> np.uint32(20)).astype(np.int64) - 2048
    levels = np.clip(((triangle * slow) >> 8) + noise, -32768, 32767)
    return levels.astype(np.float32) / np.float32(32768)
