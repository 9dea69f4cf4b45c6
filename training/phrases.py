"""Patterns that expand into many phrasings: `(a|b)` is a choice, `[a]` may be left out, `{x}` is a slot.

Everything random comes from the generator that is passed in, so a seed gives the same text everywhere.
"""

import functools
import zlib


@functools.lru_cache(maxsize=None)
def _parse(pattern):
    """A pattern as a tree: a sequence is a tuple of strings and of choices, a choice is a list of sequences."""
    position = 0

    def sequence(closers):
        nonlocal position
        parts, text = [], []
        while position < len(pattern) and pattern[position] not in closers:
            char = pattern[position]
            position += 1
            if char == "\\":
                text.append(pattern[position])
                position += 1
            elif char in "([":
                if text:
                    parts.append("".join(text))
                    text = []
                parts.append(choice(")" if char == "(" else "]"))
            else:
                text.append(char)
        if text:
            parts.append("".join(text))
        return tuple(parts)

    def choice(closer):
        nonlocal position
        options = [] if closer == ")" else [()]
        while True:
            options.append(sequence("|" + closer))
            assert position < len(pattern), f"unclosed choice in {pattern!r}"
            position += 1
            if pattern[position - 1] == closer:
                return options

    return sequence("")


def _expand(rng, tree, out):
    for part in tree:
        if isinstance(part, str):
            out.append(part)
        else:
            _expand(rng, part[int(rng.random() * len(part))], out)


def say(rng, pattern, **slots):
    """One expansion of `pattern` (or of one of a list of patterns), with the slots filled in."""
    if not isinstance(pattern, str):
        pattern = pick(rng, pattern)
    out = []
    _expand(rng, _parse(pattern), out)
    text = " ".join("".join(out).split(" ")) if "  " not in "".join(out) else " ".join("".join(out).split())
    for name, value in slots.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def pick(rng, items):
    return items[int(rng.random() * len(items))]


def held_out(key, one_in=33):
    """Whether `key` belongs to the held-out prompts. A stable hash, the same in every process and version."""
    return zlib.crc32(key.encode()) % one_in == 0


_BEFORE = ["Hi, ", "Hello, ", "Hey, ", "Please ", "Ok, ", "Okay, ", "So, ", "Hi! ", "Hello! ", "Hey! ", "Quick question: ",
           "Question: ", "I have a question. ", "Tell me, ", "Excuse me, ", "Well, ", "And ", "Now, ", "One more thing: ",
           "Can you help me? ", "Good morning. ", "I wonder, ", "Just curious, ", "Sorry, ", "Thanks. ", "Dear assistant, ", "Could you tell me: ", "Can you tell me: ", "Please tell me: ", "Help me: ", "I would like to know: ",
           "I want to know: ", "My question: ", "Do you know: ", "One question: ", "Then ", "But ", "Alright, ", "Good. ", "Next: ", "Hello omnibus, ", "Hi there! ", "Listen, ", "Say, ", "Please answer: "]
_AFTER = [" please", ", please", " Thanks!", " Thank you.", " Thanks", " thank you", " Please answer briefly.",
          " Please explain.", " Answer in one sentence.", " Be brief.", " I am new to this.", " Just curious.", " Keep it short."]


def lower_first(text):
    """The text with its first word in lower case, unless that word is a name such as `JSON` or `I`."""
    head = text.split(" ", 1)[0]
    return text if len(head) > 1 and head[1:2].isupper() or head in ("I", "I'm", "I'd", "I've") else text[:1].lower() + text[1:]


def rough(rng, text):
    """A question as people type it: varied, and now and then with a typing error."""
    text = vary(rng, text)
    return _misspell(rng, text) if rng.random() < 0.05 and len(text) > 12 else text


def plain(text):
    """The words of a text alone, to compare phrasings."""
    return "".join(char for char in text.lower() if char.isalnum() or char == " ").strip()


def vary(rng, text):
    """A question with a greeting or an afterthought, without capitals or without a final mark."""
    dice = rng.random()
    if dice < 0.2:
        before = pick(rng, _BEFORE)
        text = before + (text if before[-2] in ".!?" else lower_first(text))
    elif dice < 0.3:
        after = pick(rng, _AFTER)
        text = (text if after[1].isupper() else text.rstrip("?.!")) + after
    dice = rng.random()
    if dice < 0.16:
        text = text.lower()
    elif dice < 0.175:
        text = text.upper()
    dice = rng.random()
    if dice < 0.16:
        text = text.rstrip("?.! ")
    elif dice < 0.18:
        text = text.rstrip("?.!") + pick(rng, ["??", "!", "...", " ?"])
    return text


def _misspell(rng, text):
    """One slip of the finger in a word of letters: two swapped, one lost or one doubled."""
    at = 1 + int(rng.random() * (len(text) - 3))
    if not text[at - 1 : at + 2].isalpha():
        return text
    kind = int(rng.random() * 3)
    if kind == 0:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text[:at] + text[at + 1 :] if kind == 1 else text[:at] + text[at] + text[at:]


def fill(text, slots):
    for name, value in slots.items():
        text = text.replace("{" + name + "}", str(value))
    return text
