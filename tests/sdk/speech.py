"""OpenAI's SDK against a running server of a model that writes down speech: speech.py URL WAV."""

import sys

import openai

URL, FILE = sys.argv[1:]
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
MODEL = client.models.list().data[0].id


def written(**fields):
    with open(FILE, "rb") as file:
        return client.audio.transcriptions.create(**{"model": MODEL, "file": file, "temperature": 1e-6, **fields})


def text():
    answer = written(language="en")
    assert answer.text and answer.usage.seconds == 3, answer
    assert written(language="en", response_format="text").strip() == answer.text


def segments():
    answer = written(response_format="verbose_json", timestamp_granularities=["segment"])
    assert answer.duration == 2.5 and answer.language in ("english", "german"), answer
    times = [(segment.start, segment.end) for segment in answer.segments]
    assert times and all(start < end <= 2.5 for start, end in times), times


def subtitles():
    assert " --> " in written(response_format="srt")
    assert written(response_format="vtt").startswith("WEBVTT")


def stream():
    events = list(written(language="en", stream=True))
    assert events[-1].type == "transcript.text.done", events
    deltas = "".join(event.delta for event in events[:-1])
    assert deltas.strip() == events[-1].text == written(language="en").text


def translation():
    with open(FILE, "rb") as file:
        assert client.audio.translations.create(model=MODEL, file=file, temperature=1e-6).text


def errors():
    for param, fields in (("language", {"language": "tlh"}), ("model", {"model": "missing"})):
        try:
            written(**fields)
        except openai.APIStatusError as error:
            assert error.param == param, error
        else:
            raise AssertionError(f"{fields} was not refused")


CHECKS = [text, segments, subtitles, stream, translation, errors]
for check in CHECKS:
    check()
    print("ok", check.__name__)
print(f"{len(CHECKS)} checks of speech with openai {openai.__version__}")
