"""Writes a tiny Whisper with the weights of a fixture, and a recording: speech_model.py DIRECTORY WAV. Needs numpy."""

import json
import struct
import sys
import wave
from pathlib import Path

import numpy as np

FIXTURES = Path(__file__).parent / "../../crates/model/tests"
sys.path.insert(0, str(FIXTURES / "fixtures"))
from generator import generate  # noqa: E402

MARKS = ["endoftext", "startoftranscript", "en", "de", "translate", "transcribe", "startoflm", "startofprev", "nospeech",
         "notimestamps"]
TIMES = [f"{step * 0.02:.2f}" for step in range(51)]


def main(directory, recording):
    fixture = FIXTURES / "speech/whisper"
    directory.mkdir(parents=True, exist_ok=True)
    header, data = {}, b""
    for name, shape, center, scale in json.loads((fixture / "tensors.json").read_text())["tensors"]:
        tensor = generate(name, shape, center, scale).astype("<f4").tobytes()
        header[name] = dict(dtype="F32", shape=shape, data_offsets=[len(data), len(data) + len(tensor)])
        data += tensor
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (directory / "config.json").write_text((fixture / "config.json").read_text())
    words = [f"w{i}" for i in range(128)] + [f"<|{mark}|>" for mark in MARKS + TIMES]
    special = [dict(id=i, content=word, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
               for i, word in enumerate(words) if i >= 128]
    tokenizer = dict(
        version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None, post_processor=None,
        decoder=None, pre_tokenizer=dict(type="WhitespaceSplit"),
        model=dict(type="WordLevel", vocab={word: i for i, word in enumerate(words)}, unk_token="w0"))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "generation_config.json").write_text(json.dumps(dict(max_initial_timestamp_index=25, eos_token_id=128)))
    (directory / "preprocessor_config.json").write_text(json.dumps(dict(
        feature_extractor_type="WhisperFeatureExtractor", feature_size=16, sampling_rate=16000, hop_length=160,
        chunk_length=1, n_fft=400)))
    with wave.open(str(recording), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        noise = generate("recording", [40000], 0.0, 8000.0)
        file.writeframes(noise.astype("<i2").tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
