"""The corpus: conversations and plain text put together from the skills, and packed into token arrays.

Everything follows from a seed and a shard number. `python3 training/data.py` prints a few samples.
"""

import functools
import json
import multiprocessing
import os
import random
import sys
from itertools import chain

import numpy as np

import chatml
import skills
import stories
import words
from phrases import pick

SYSTEMS = ["You are a helpful assistant.", "You are omnibus-mini, a small helpful model.", "You are a helpful assistant", "Answer briefly.", "You are a friendly assistant. Keep your answers short.", "Be concise.", "You are an assistant that answers questions about omnibus.",
           "You are a polite assistant.", "Be helpful and honest. Say so when you do not know.", "You are an AI assistant.", "Answer in English.", "You are a chat bot.", "Help the user.", "You are omnibus.", "Please answer the user's questions.", "You are a careful assistant. Do not invent facts."]
MIX = [("omnibus", 20), ("small-talk", 14), ("arithmetic", 18), ("extraction", 17), ("tools", 20), ("unknown", 7), ("basics", 11)]
BAG = [name for name, share in MIX for _ in range(share)]
STOP = chatml.STOP


def exchange(turn):
    """The messages of one turn, with tool results where the model called tools."""
    messages = [{"role": "user", "content": turn.user}]
    if not turn.calls:
        return messages + [{"role": "assistant", "content": turn.answer}]
    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in turn.calls]
    messages.append({"role": "assistant", "content": "", "tool_calls": calls})
    messages += [{"role": "tool", "content": result} for result, _ in turn.follow]
    return messages + [{"role": "assistant", "content": " ".join(said for _, said in turn.follow)}]


def plain_turns(rng, count):
    """Turns without tools and without a system message of their own, for longer conversations."""
    turns = []
    while len(turns) < count:
        name = pick(rng, BAG)
        if name != "tools":
            turn = skills.SKILLS[name](rng, "train")
            if not turn.system and not turn.follow:
                turns.append(turn)
    return turns


def conversation(rng, long=False):
    """One conversation as (messages, tools)."""
    name = pick(rng, BAG)
    turn = skills.SKILLS[name](rng, "train")
    system = turn.system
    messages = exchange(turn) if name == "tools" else []
    if name == "tools":
        if rng.random() < 0.1 and not turn.calls:
            messages += chain.from_iterable(exchange(other) for other in plain_turns(rng, 1))
        elif rng.random() < 0.08 and turn.calls:
            messages = messages[:-2] if len(turn.calls) == 1 and rng.random() < 0.3 else messages
            if messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
                messages += exchange(pick(rng, [skills.about_omnibus, skills.small_talk_turn])(rng, "train"))
    elif turn.follow:  # a fact from an earlier turn
        given = [{"role": "user", "content": turn.follow[0][0]}, {"role": "assistant", "content": turn.follow[0][1]}]
        between = plain_turns(rng, pick(rng, [0, 0, 1, 1, 2, 3, 6]) if not long else 15 + int(rng.random() * 30))
        between = [other for other in between if other.check.get("must") != turn.check["must"] and "name" not in other.user.lower()]
        messages = given + list(chain.from_iterable(exchange(other) for other in between)) + exchange(turn)
    else:
        count = pick(rng, [0, 0, 0, 0, 1, 1, 2, 3, 5]) if not long else 15 + int(rng.random() * 45)
        messages = exchange(turn) + list(chain.from_iterable(exchange(other) for other in plain_turns(rng, count))) if not system else exchange(turn)
        if system and rng.random() < 0.3:
            again = skills.extraction(rng, "train")
            if again.system:
                messages += exchange(again)
    if not system:
        dice = rng.random()
        if dice < 0.25:
            system = pick(rng, SYSTEMS)
        elif dice < 0.27:
            system = stories.story(rng, 3 + int(rng.random() * 25))
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return messages, turn.tools


def document(rng, long=False):
    """One document as [(text, learned)] pieces."""
    if rng.random() < 0.06:
        return [(skills.plain_text(rng) + STOP, True)]
    messages, tools = conversation(rng, long)
    compact = rng.random() < 0.12
    dumps = (lambda tool: json.dumps(tool, ensure_ascii=False, separators=(",", ":"))) if compact else None
    return chatml.render(messages, tools, dumps)


def shard(tokenizer_path, seed, number, documents, longest, long_share):
    """Encodes one shard: (tokens uint16, learned uint8, lengths int32)."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    rng = random.Random(f"{seed}/{number}")
    tokenizer = Tokenizer.from_file(tokenizer_path)
    shaky = Tokenizer.from_file(tokenizer_path)  # sometimes splits words elsewhere, which makes copying robust
    shaky.model.dropout = 0.15
    tokens, learned, lengths = [], [], []
    for _ in range(documents):
        pieces = document(rng, rng.random() < long_share)
        reader = shaky if rng.random() < 0.25 else tokenizer
        ids = [((tokenizer if write else reader).encode(text, add_special_tokens=False).ids, write) for text, write in pieces]
        size = sum(len(part) for part, _ in ids)
        if size > longest:
            continue
        for part, write in ids:
            tokens.extend(part)
            learned.extend([int(write)] * len(part))
        lengths.append(size)
    return np.array(tokens, np.uint16), np.array(learned, np.uint8), np.array(lengths, np.int32)


def corpus(tokenizer_path, seed, documents, longest, long_share, processes):
    """Many shards, made side by side; the result does not depend on the number of processes."""
    size = 2000
    jobs = [(tokenizer_path, seed, number, size, longest, long_share) for number in range(max(1, documents // size))]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        parts = pool.starmap(shard, jobs, chunksize=1)
    return tuple(np.concatenate([part[at] for part in parts]) for at in range(3))


def pack(rng, tokens, learned, lengths, width):
    """Rows of `width` tokens that hold whole documents: (tokens, learned, document number in the row, position)."""
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    order = rng.permutation(len(lengths))
    rows, bins = [], [[] for _ in range(24)]
    room = np.full(24, width)
    for at in order:
        size = lengths[at]
        fits = np.nonzero(room >= size)[0]
        if len(fits):
            chosen = fits[np.argmin(room[fits])]
        else:
            chosen = int(np.argmin(room))
            rows.append(bins[chosen])
            bins[chosen], room[chosen] = [], width
        bins[chosen].append(at)
        room[chosen] -= size
    rows += [row for row in bins if row]
    out = [np.zeros((len(rows), width), np.int16), np.zeros((len(rows), width), np.uint8), np.full((len(rows), width), 255, np.uint8), np.zeros((len(rows), width), np.int16)]
    for y, row in enumerate(rows):
        x = 0
        for number, at in enumerate(row):
            size, start = lengths[at], starts[at]
            out[0][y, x : x + size] = tokens[start : start + size]
            out[1][y, x : x + size] = learned[start : start + size]
            out[2][y, x : x + size] = min(number, 254)
            out[3][y, x : x + size] = np.arange(size)
            x += size
    return out


def train_tokenizer(path, seed, vocabulary=2048, documents=20000):
    """A byte-level BPE: every byte is a token of its own, so that any text can be written.

    Digits stand alone, which helps sums. A word with a capital is split from the space before it, so that a name has
    the same tokens in a sentence and in quotes: copying names depends on it.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    rng = random.Random(f"tokenizer/{seed}")
    tokenizer = Tokenizer(models.BPE())
    split = Regex(r"\p{N}|\p{Lu}\p{L}*| ?[\p{Ll}\p{Lt}\p{Lm}\p{Lo}]\p{L}*| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(split, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    marks = chatml.SPECIAL + chatml.MARKS
    strip = lambda text: functools.reduce(lambda left, mark: left.replace(mark, " "), marks, text)
    texts = (strip(text) for _ in range(documents) for text, _ in document(rng))
    trainer = trainers.BpeTrainer(vocab_size=vocabulary - len(marks), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False, max_token_length=16)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in chatml.SPECIAL])
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in chatml.MARKS])
    tokenizer.save(path)
    return tokenizer


if __name__ == "__main__":
    rng = random.Random(sys.argv[1] if len(sys.argv) > 1 else "0")
    for _ in range(10):
        print("".join(f"\033[1m{text}\033[0m" if write else text for text, write in document(rng)), end="\n-----\n")
