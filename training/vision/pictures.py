"""Pictures of shapes and numbers, and questions about them with their answers.

Held out from training: pairs of a colour and a shape, numbers, and phrasings of questions (`HELD_PAIRS`, `is_held_number`,
the last phrasing of each kind).
"""

import io
import math
import random

from PIL import Image, ImageDraw, ImageFont

COLOURS = {
    "red": (214, 40, 40), "green": (45, 156, 68), "blue": (38, 84, 214), "yellow": (244, 208, 35),
    "orange": (245, 130, 32), "purple": (128, 50, 168), "black": (24, 24, 24), "pink": (246, 120, 180),
}
SHAPES = ["circle", "square", "triangle", "star"]
HELD_PAIRS = {("red", "star"), ("blue", "triangle"), ("purple", "circle"), ("orange", "square")}
BACKGROUNDS = [(255, 255, 255), (238, 238, 238), (250, 243, 224), (222, 236, 250), (226, 246, 228)]
MOST_SHAPES = 6

QUESTIONS = {
    "colour": ["What colour is the {shape}?", "Which colour does the {shape} have?", "What color is this {shape}?", "Name the color of this {shape}.", "Colour of the {shape}?", "Name the colour of the {shape}."],
    "shape": ["What shape is this?", "Which shape do you see?", "What shape is in the picture?", "Which shape is this?", "Name this shape.", "Name the shape."],
    "count": ["How many shapes are there?", "How many shapes do you see?", "Count the shapes.", "Number of shapes?", "How many shapes does the picture show?", "How many shapes can you see?"],
    "count of": ["How many {what}s are there?", "How many {what}s do you see?", "Count the {what}s.", "Number of {what}s?", "How many {what}s does the picture show?", "How many {what}s can you see?"],
    "digits": ["Which number is written here?", "What number is this?", "Read the number.", "Which number do you see?", "What number does the picture show?", "Which number is this?"],
    "what": ["What is in the picture?", "What do you see?", "Describe the picture.", "What is this?", "Say what you see.", "What does the picture show?"],
}
KINDS = ["colour", "shape", "count", "digits"]


def is_held_number(number):
    """A tenth of the numbers of two and three digits."""
    return len(number) > 1 and (int(number) * 7919 + len(number)) % 10 == 0


def phrasing(rng, kind, held):
    return QUESTIONS[kind][-1] if held else rng.choice(QUESTIONS[kind][:-1])


def shaded(rng, colour):
    return tuple(max(0, min(255, part + rng.randint(-14, 14))) for part in colour)


def polygon(shape, x, y, radius, turn):
    """The corners of a shape around a point."""
    corners = {"square": 4, "triangle": 3, "star": 10}[shape]
    points = []
    for corner in range(corners):
        angle = turn + 2 * math.pi * corner / corners
        reach = radius * (0.45 if shape == "star" and corner % 2 else 1.0)
        points.append((x + reach * math.cos(angle), y + reach * math.sin(angle)))
    return points


def draw_shape(rng, draw, shape, colour, place, radius):
    x, y = place
    fill = shaded(rng, COLOURS[colour])
    if shape == "circle":
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=fill)
        return
    # A square stands on a side, a triangle and a star on their feet, all but a little.
    turn = {"square": math.pi / 4, "triangle": -math.pi / 2, "star": -math.pi / 2}[shape] + rng.uniform(-0.2, 0.2)
    draw.polygon(polygon(shape, x, y, radius * (1.2 if shape != "square" else 1.25), turn), fill=fill)


def canvas(rng):
    size = rng.choice([(96, 96), (128, 128), (160, 120), (120, 160), (200, 200), (256, 192), (320, 320)])
    return Image.new("RGB", size, shaded(rng, rng.choice(BACKGROUNDS)))


def places(rng, size, count):
    """Points that lie apart, and a radius with which shapes around them do not touch."""
    width, height = size
    most = min(width, height)
    for shrink in range(60):
        radius = most * rng.uniform(0.09, 0.30 if count == 1 else 0.17) * 0.98**shrink
        margin, found = radius * 1.35, []
        for _ in range(40 * count):
            point = (rng.uniform(margin, width - margin), rng.uniform(margin, height - margin))
            if all(math.dist(point, other) > 2.7 * radius for other in found):
                found.append(point)
            if len(found) == count:
                return found, radius
    raise ValueError(f"{count} shapes do not fit")


def pair(rng, held):
    """A colour and a shape; held out pairs only where `held`."""
    if held and rng.random() < 0.5:
        return rng.choice(sorted(HELD_PAIRS))
    while True:
        chosen = (rng.choice(list(COLOURS)), rng.choice(SHAPES))
        if held or chosen not in HELD_PAIRS:
            return chosen


def shapes_picture(rng, held, count):
    image = canvas(rng)
    points, radius = places(rng, image.size, count)
    draw = ImageDraw.Draw(image)
    pairs = [pair(rng, held) for _ in points]
    if count > 1 and rng.random() < 0.4:
        pairs = [pairs[0]] * count
    for (colour, shape), place in zip(pairs, points):
        draw_shape(rng, draw, shape, colour, place, radius * rng.uniform(0.85, 1.0))
    asked = [("count", phrasing(rng, "count", held), str(count))]
    if count == 1:
        colour, shape = pairs[0]
        asked += [
            ("colour", phrasing(rng, "colour", held).format(shape=rng.choice([shape, "shape"])), colour),
            ("shape", phrasing(rng, "shape", held), shape),
            ("what", phrasing(rng, "what", held), f"{'an' if colour == 'orange' else 'a'} {colour} {shape}"),
        ]
    else:
        colour, shape = rng.choice(pairs)
        what = rng.choice([colour + " shape", shape])
        number = sum(what in (other[0] + " shape", other[1]) for other in pairs)
        asked.append(("count of", phrasing(rng, "count of", held).format(what=what), str(number)))
    return image, asked


def number_picture(rng, held):
    image = canvas(rng)
    while True:
        number = str(rng.randrange(10 ** rng.randint(1, 3)))
        if is_held_number(number) == (held and rng.random() < 0.5):
            break
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(min(image.size) * rng.uniform(0.32, 0.55))
    left, top, right, bottom = draw.textbbox((0, 0), number, font=font)
    x = rng.uniform(0.04, 0.96) * max(0, image.width - (right - left)) - left
    y = rng.uniform(0.04, 0.96) * max(0, image.height - (bottom - top)) - top
    dark = [name for name in COLOURS if name not in ("yellow", "pink")]
    draw.text((x, y), number, font=font, fill=shaded(rng, COLOURS[rng.choice(dark)]))
    return image, [("digits", phrasing(rng, "digits", held), number)]


def picture(rng, held=False, kind=None):
    """A picture and the questions about it: (kind, question, answer)."""
    if kind == "digits" or (kind is None and rng.random() < 0.4):
        return number_picture(rng, held)
    alone = kind in ("colour", "shape", "what") or (kind is None and rng.random() < 0.4)
    return shapes_picture(rng, held, 1 if alone else rng.randint(1, MOST_SHAPES))


def held_out(kind, count, seed):
    """Pictures as PNG bytes with one question of a kind and its answer."""
    rng = random.Random(f"held/{seed}/{kind}")
    for _ in range(count):
        image, asked = picture(rng, held=True, kind=kind)
        question, answer = next(case[1:] for case in asked if case[0] == kind)
        data = io.BytesIO()
        image.save(data, "PNG")
        yield data.getvalue(), question, answer
