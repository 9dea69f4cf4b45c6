"""Chat and completions, whole and streamed, through gateways in front of two servers.

    gateways.py GATEWAY URL URL

GATEWAY is the path of `sglang-router`, `vllm-router` or `smg`; the URLs are those of the servers. The gateway ends with this script.
"""

import json
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

DEADLINE_S = 120
CHAT = {"messages": [{"role": "user", "content": "What is two plus two?"}], "max_tokens": 8, "temperature": 0}
TEXT = {"prompt": "Two plus two is", "max_tokens": 8, "temperature": 0}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def command(gateway, port, urls):
    name = pathlib.Path(gateway).name
    subcommand = {"smg": ["launch"], "sglang-router": ["launch"], "vllm-router": []}[name]
    own = ["--host", "127.0.0.1", "--port", port, "--policy", "round_robin", "--prometheus-port", free_port()]
    return [gateway, *subcommand, "--worker-urls", *urls, *own]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return answer.read().decode()


def until_ready(url, model, gateway):
    """Waits for the gateway's first answer, and not for a time."""
    since = time.monotonic()
    while True:
        try:
            return post(f"{url}/v1/completions", {"model": model, **TEXT})
        except OSError as error:
            assert gateway.poll() is None, "the gateway has ended"
            if time.monotonic() - since > DEADLINE_S:
                raise TimeoutError(f"no answer through the gateway: {error}") from error
            time.sleep(0.2)


def streamed(text, of):
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", text
    choices = [choice for line in lines[:-1] for choice in json.loads(line)["choices"]]
    return "".join(of(choice) or "" for choice in choices)


def check(url, model):
    kinds = [
        ("chat/completions", CHAT, lambda c: c["message"]["content"], lambda c: c["delta"].get("content")),
        ("completions", TEXT, lambda c: c["text"], lambda c: c["text"]),
    ]
    for path, body, whole_of, part_of in kinds:
        body = {"model": model, **body}
        # Twice: one answer of each server.
        for _ in range(2):
            whole = whole_of(json.loads(post(f"{url}/v1/{path}", body))["choices"][0])
            parts = streamed(post(f"{url}/v1/{path}", {**body, "stream": True}), part_of)
            assert whole == parts, (path, whole, parts)
        print(f"ok {path}, whole and streamed")


def main():
    path, *urls = sys.argv[1:]
    with urllib.request.urlopen(f"{urls[0]}/v1/models") as models:
        model = json.load(models)["data"][0]["id"]
    port = free_port()
    gateway = subprocess.Popen(command(path, port, urls), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until_ready(f"http://127.0.0.1:{port}", model, gateway)
        check(f"http://127.0.0.1:{port}", model)
    except BaseException:
        gateway.kill()
        print(gateway.stderr.read()[-4000:], file=sys.stderr)
        raise
    finally:
        gateway.kill()
        gateway.wait()
    print(f"{pathlib.Path(path).name}: two servers behind it answer")


if __name__ == "__main__":
    main()
