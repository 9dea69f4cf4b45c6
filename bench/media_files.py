"""Pictures, videos and sounds for bench/media.py, made from numbers: equal on every machine, with the standard library only."""

import base64
import random
import struct
import zlib

WIDTH, HEIGHT = 640, 480
CELL = 16
VIDEO_WIDTH, VIDEO_HEIGHT = 320, 256
COLOURS = 128


def pixels(number):
    """A picture of random cells with noise, in RGB, row by row."""
    rng, rows = random.Random(number), []
    for _ in range(HEIGHT // CELL):
        cells = [bytes(rng.randrange(16, 224) for _ in range(3)) for _ in range(WIDTH // CELL)]
        flat = int.from_bytes(b"".join(cell * CELL for cell in cells), "little")
        for _ in range(CELL):
            # Sums of bytes that never carry.
            noise = rng.randbytes(3 * WIDTH).translate(bytes(byte & 15 for byte in range(256)))
            rows.append((flat + int.from_bytes(noise, "little")).to_bytes(3 * WIDTH, "little"))
    return rows


def png(number):
    """The picture as PNG."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in pixels(number)), 3)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def bmp(number):
    """The picture as BMP."""
    rows = []
    for row in pixels(number):
        turned = bytearray(len(row))
        turned[0::3], turned[1::3], turned[2::3] = row[2::3], row[1::3], row[0::3]
        rows.append(bytes(turned))
    size = 3 * WIDTH * HEIGHT
    header = struct.pack("<IiiHHIIiiII", 40, WIDTH, HEIGHT, 1, 24, 0, size, 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + size, 0, 0, 54) + header + b"".join(reversed(rows))


def tiff(number):
    """The picture as uncompressed TIFF."""
    data = b"".join(pixels(number))
    at = 8 + 2 + 12 * 10 + 4
    entries = [(256, 4, 1, WIDTH), (257, 4, 1, HEIGHT), (258, 3, 3, at), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, at + 6),
               (277, 3, 1, 3), (278, 4, 1, HEIGHT), (279, 4, 1, len(data)), (284, 3, 1, 1)]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries) + b"\0" * 4
    return b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<HHH", 8, 8, 8) + data


def gif(number, frames):
    """A video of two frames a second. Longer ones begin with the frames of shorter ones.

    Each frame is stored without compression: a code of eight bits for each pixel, and a clear code before codes would grow.
    """
    rng = random.Random(number)
    palette = rng.randbytes(3 * COLOURS)
    file = [b"GIF89a", struct.pack("<HHBBB", VIDEO_WIDTH, VIDEO_HEIGHT, 0xF6, 0, 0), palette, b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"]
    for _ in range(frames):
        cells = [bytes([rng.randrange(COLOURS)]) for _ in range(VIDEO_WIDTH // CELL * (VIDEO_HEIGHT // CELL))]
        across = VIDEO_WIDTH // CELL
        rows = [b"".join(cell * CELL for cell in cells[row * across:][:across]) for row in range(VIDEO_HEIGHT // CELL)]
        shown = b"".join(row * CELL for row in rows)
        codes = b"".join(b"\x80" + shown[at:at + 126] for at in range(0, len(shown), 126)) + b"\x81"
        blocks = b"".join(bytes([len(codes[at:at + 255])]) + codes[at:at + 255] for at in range(0, len(codes), 255))
        file.append(b"!\xf9\x04\x04" + struct.pack("<H", 50) + b"\0\0")
        file.append(b"," + struct.pack("<HHHHB", 0, 0, VIDEO_WIDTH, VIDEO_HEIGHT, 0) + b"\x07" + blocks + b"\0")
    return b"".join(file) + b";"


def wav(number, seconds=20, rate=16000):
    """A sound of noise in steps, in 16 bits."""
    rng = random.Random(number)
    steps = (rng.randbytes(2 * 40).translate(bytes(byte & 0x9F for byte in range(256))) for _ in range(seconds * rate // 400))
    data = b"".join(step * 10 for step in steps)
    header = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<I", 16) + header + b"data" + struct.pack("<I", len(data)) + data


def image_part(data, kind="png"):
    """A part of a message with an image."""
    return dict(type="image_url", image_url=dict(url=f"data:image/{kind};base64," + base64.b64encode(data).decode()))


def video_part(data):
    """A part of a message with a video."""
    return dict(type="video_url", video_url=dict(url="data:image/gif;base64," + base64.b64encode(data).decode()))


def audio_part(data):
    """A part of a message with a sound."""
    return dict(type="input_audio", input_audio=dict(data=base64.b64encode(data).decode(), format="wav"))
