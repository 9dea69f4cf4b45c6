#!/usr/bin/env python3
"""Sounds to begin with for the target `sound`, in the formats that crates/media has no test files of.

    python3 fuzz/seeds.py fuzz/corpus/sound
"""

import pathlib
import struct
import sys

RATE = 8000
SAMPLES = [(number * 37) % 256 for number in range(64)]


def chunk(order, name, data):
    return name + struct.pack(f"{order}I", len(data)) + data + b"\0" * (len(data) % 2)


def wav(code, channels, bits, data):
    """A WAV file of an encoding: 1 for integers, 3 for floats, 2 and 17 for ADPCM, 6 and 7 for A-law and µ-law."""
    frame = max(channels * bits // 8, 1)
    header = struct.pack("<HHIIHH", code, channels, RATE, RATE * frame, frame, bits)
    return b"RIFF" + struct.pack("<I", 28 + len(header) + len(data)) + b"WAVE" + chunk("<", b"fmt ", header) + chunk("<", b"data", data)


def aiff(channels, bits, data):
    """An AIFF file of integers. The rate is a float of 80 bits."""
    rate = struct.pack(">HQ", 16383 + 12, RATE << 51)
    common = struct.pack(">hIh", channels, len(data) * 8 // (bits * channels), bits) + rate
    body = b"AIFF" + chunk(">", b"COMM", common) + chunk(">", b"SSND", bytes(8) + data)
    return chunk(">", b"FORM", body)


def adts(frames):
    """AAC frames of silence in ADTS headers: one channel of 16 kHz, and a payload of an empty element."""
    payload = b"\x01\x18\x20\x07"
    length = 7 + len(payload)
    head = bytes([0xFF, 0xF1, 0x60, 0x40 | length >> 11, length >> 3 & 0xFF, (length & 7) << 5 | 0x1F, 0xFC])
    return (head + payload) * frames


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    integers = bytes(SAMPLES)
    floats = struct.pack("<64f", *(sample / 128 - 1 for sample in SAMPLES))
    files = {
        "8.wav": wav(1, 1, 8, integers), "16.wav": wav(1, 2, 16, integers), "24.wav": wav(1, 1, 24, integers[:63]),
        "32.wav": wav(1, 1, 32, integers), "float.wav": wav(3, 1, 32, floats), "a_law.wav": wav(6, 1, 8, integers),
        "mu_law.wav": wav(7, 1, 8, integers), "16.aiff": aiff(1, 16, integers), "8.aiff": aiff(2, 8, integers),
        "silence.aac": adts(4),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
