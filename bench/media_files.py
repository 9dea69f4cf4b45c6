"""Pictures, videos and sounds for bench/media.py, made from numbers: equal on every machine, with the standard library only."""

import base64
import random
import struct
import zlib

CELL = 16
VIDEO_WIDTH, VIDEO_HEIGHT = 320, 256
COLOURS = 128


class Images:
    """Pictures of one size."""

    def __init__(self, width=640, height=480):
        self.width, self.height = width, height

    @classmethod
    def read(cls, text):
        """Of a size as `640x480`."""
        width, height = (int(side) for side in text.split("x"))
        if not 0 < width <= 8192 or not 0 < height <= 8192:
            raise ValueError(text)
        return cls(width, height)

    def __str__(self):
        return f"{self.width}x{self.height}"

    def part(self, number, kind="png"):
        """A part of a message with a picture."""
        data = dict(png=self.png, bmp=self.bmp, tiff=self.tiff)[kind](number)
        return dict(type="image_url", image_url=dict(url=data_url(f"image/{kind}", data)))

    def pixels(self, number):
        """A picture of random cells with noise, in RGB, row by row."""
        rng, rows, row_bytes = random.Random(number), [], 3 * self.width
        for top in range(0, self.height, CELL):
            cells = [bytes(rng.randrange(16, 224) for _ in range(3)) for _ in range(-(-self.width // CELL))]
            flat = int.from_bytes(b"".join(cell * CELL for cell in cells)[:row_bytes], "little")
            for _ in range(min(CELL, self.height - top)):
                # Sums of bytes that never carry.
                noise = rng.randbytes(row_bytes).translate(bytes(byte & 7 for byte in range(256)))
                rows.append((flat + int.from_bytes(noise, "little")).to_bytes(row_bytes, "little"))
        return rows

    def png(self, number):
        """The picture as PNG, whose rows are differences to those above, so that it is compressed as photographs are."""
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        above, body = bytes(3 * self.width), []
        for row in self.pixels(number):
            body.append(b"\2" + difference(row, above))
            above = row
        body = zlib.compress(b"".join(body), 6)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")

    def bmp(self, number):
        """The picture as BMP."""
        rows = []
        for row in self.pixels(number):
            turned = bytearray(len(row))
            turned[0::3], turned[1::3], turned[2::3] = row[2::3], row[1::3], row[0::3]
            rows.append(bytes(turned) + bytes(-len(row) % 4))
        data = b"".join(reversed(rows))
        header = struct.pack("<IiiHHIIiiII", 40, self.width, self.height, 1, 24, 0, len(data), 2835, 2835, 0, 0)
        return b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, 54) + header + data

    def tiff(self, number):
        """The picture as uncompressed TIFF."""
        data = b"".join(self.pixels(number))
        at = 8 + 2 + 12 * 10 + 4
        entries = [(256, 4, 1, self.width), (257, 4, 1, self.height), (258, 3, 3, at), (259, 3, 1, 1), (262, 3, 1, 2),
                   (273, 4, 1, at + 6), (277, 3, 1, 3), (278, 4, 1, self.height), (279, 4, 1, len(data)), (284, 3, 1, 1)]
        directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries) + b"\0" * 4
        return b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<HHH", 8, 8, 8) + data


def difference(row, above):
    """Each byte of a row less that above it, modulo 256."""
    tops = int.from_bytes(b"\x80" * len(row), "little")
    a, b = int.from_bytes(row, "little"), int.from_bytes(above, "little")
    return (((a | tops) - (b & ~tops)) ^ ((a ^ b ^ tops) & tops)).to_bytes(len(row), "little")


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


def data_url(kind, data):
    """Data as a URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def video_part(data, kind="image/gif"):
    """A part of a message with a video."""
    return dict(type="video_url", video_url=dict(url=data_url(kind, data)))


def audio_part(data):
    """A part of a message with a sound."""
    return dict(type="input_audio", input_audio=dict(data=base64.b64encode(data).decode(), format="wav"))
