"""Files and batches through the SDKs of OpenAI and Anthropic, against a server with --state-dir.

usage: batches.py URL, where URL is the server's root, such as http://127.0.0.1:8000
"""

import json
import sys
import time

import anthropic
import openai

ROOT = sys.argv[1]
OPENAI = openai.OpenAI(base_url=ROOT + "/v1", api_key="none", max_retries=0)
ANTHROPIC = anthropic.Anthropic(base_url=ROOT, api_key="none", max_retries=0)
MODEL = OPENAI.models.list().data[0].id


def question(number, **more):
    return {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": f"Bus {number}?"}], **more}


def line(number, **more):
    body = question(number, **more)
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def send(lines):
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    expiry = {"anchor": "created_at", "seconds": 7200}
    return OPENAI.files.create(file=("in.jsonl", text), purpose="batch", expires_after=expiry)


def make(file):
    window = "24h"
    return OPENAI.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window=window, metadata={"run": "7"}
    )


def ended(batch):
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(0.05)
        batch = OPENAI.batches.retrieve(batch.id)
    return batch


def files():
    file = send([line(1)])
    assert file.object == "file" and file.expires_at - file.created_at == 7200 and file.status == "processed"
    assert OPENAI.files.retrieve(file.id).filename == "in.jsonl"
    assert [each.id for each in OPENAI.files.list(purpose="batch", limit=1)][0] == file.id
    assert json.loads(OPENAI.files.content(file.id).text) == line(1)
    assert OPENAI.files.delete(file.id).deleted
    try:
        OPENAI.files.retrieve(file.id)
    except openai.NotFoundError as error:
        assert file.id in error.message
    else:
        raise AssertionError("the file is still there")


def batch():
    done = ended(make(send([*map(line, range(8)), line(8, max_tokens=-1)])))
    assert done.status == "completed" and done.metadata == {"run": "7"} and done.model == MODEL
    counts = done.request_counts
    assert (counts.total, counts.completed, counts.failed) == (9, 8, 1)
    assert done.usage.output_tokens > 0 and done.usage.total_tokens > done.usage.output_tokens
    rows = [json.loads(row) for row in OPENAI.files.content(done.output_file_id).iter_lines()]
    assert sorted(row["custom_id"] for row in rows) == [f"line-{number}" for number in range(8)]
    assert all(row["response"]["body"]["choices"][0]["message"]["role"] == "assistant" for row in rows)
    error = json.loads(OPENAI.files.content(done.error_file_id).text)
    assert error["response"]["status_code"] == 400 and error["custom_id"] == "line-8"
    assert done.id in [each.id for each in OPENAI.batches.list(limit=2)]


def bad_batch():
    failed = ended(make(send([line(1), line(1)])))
    assert failed.status == "failed" and failed.errors.data[0].line == 2
    assert failed.errors.data[0].code == "duplicate_custom_id"


def cancelled_batch():
    made = make(send([line(number, max_tokens=400, ignore_eos=True) for number in range(100)]))
    assert OPENAI.batches.cancel(made.id).status in ("cancelling", "cancelled")
    done = ended(made)
    assert done.status == "cancelled" and done.cancelled_at
    rows = OPENAI.files.content(done.error_file_id).text.splitlines()
    assert json.loads(rows[0])["error"]["code"] == "batch_cancelled"


def message_batch():
    requests = [{"custom_id": f"line-{number}", "params": question(number)} for number in range(4)]
    requests.append({"custom_id": "wrong", "params": question(5, max_tokens=-1)})
    batches = ANTHROPIC.messages.batches
    made = batches.create(requests=requests)
    done = batches.retrieve(made.id)
    while done.processing_status != "ended":
        time.sleep(0.05)
        done = batches.retrieve(made.id)
    assert (done.request_counts.succeeded, done.request_counts.errored) == (4, 1)
    results = {row.custom_id: row.result for row in batches.results(made.id)}
    assert results["line-0"].message.role == "assistant" and results["line-0"].message.usage.output_tokens > 0
    assert results["wrong"].error.error.type == "invalid_request_error"
    assert made.id in [each.id for each in batches.list(limit=1)]
    assert batches.delete(made.id).type == "message_batch_deleted"


def cancelled_message_batch():
    requests = [{"custom_id": f"line-{number}", "params": question(number, max_tokens=400)} for number in range(100)]
    made = ANTHROPIC.messages.batches.create(requests=requests)
    assert ANTHROPIC.messages.batches.cancel(made.id).processing_status in ("canceling", "ended")


for check in [files, batch, bad_batch, cancelled_batch, message_batch, cancelled_message_batch]:
    check()
    print(f"ok {check.__name__}")
