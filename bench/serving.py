"""Shared code of the benchmarks: test models, servers, a client that times every token, and result files.

Needs Python alone, except `make_models`, which needs mlx-lm.
"""

import argparse
import collections
import contextlib
import dataclasses
import datetime
import http.client
import importlib.metadata
import json
import os
import pathlib
import platform
import random
import signal
import socket
import statistics
import subprocess
import sys
import textwrap
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
BLOCK_TOKENS = 32  # the default of `--block-size`

# Llamas, with an untied head whose row for the end token is zero, so that greedy never picks it.
SIZES = {
    "100m": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, head_dim=64,
                 intermediate_size=2048),
    "10m": dict(hidden_size=256, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                intermediate_size=704),
}
COMMON = dict(vocab_size=16000, rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=8192,
              tie_word_embeddings=False)
END = COMMON["vocab_size"] - 1


# --- the model

def make_models(out, size="100m"):
    """Directories of a 4-bit llama with random weights, made once: `bf16` as published, `f32` with float32 scales.

    mlx computes float32 scales much faster on a CPU. Random weights generate random words; greedy decoding makes that
    repeatable, and no token ends the output early.
    """
    folder = out / f"llama-{size}"
    made = {name: folder / name for name in ("bf16", "f32")}
    done = folder / "complete"
    if done.exists():
        return made
    import mlx.core as mx
    from mlx_lm.models import llama
    from mlx_lm.utils import quantize_model, save_config, save_model

    mx.set_default_device(mx.cpu)
    mx.random.seed(7)
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], bos_token_id=END, eos_token_id=END,
                  attention_bias=False, mlp_bias=False, **SIZES[size], **COMMON)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    head = model.lm_head.weight
    head[END] = 0
    model.set_dtype(mx.bfloat16)
    model, config = quantize_model(model, config, group_size=64, bits=4)
    for name, dtype in (("bf16", mx.bfloat16), ("f32", mx.float32)):
        model.set_dtype(dtype)
        made[name].mkdir(parents=True, exist_ok=True)
        save_model(made[name], model)
        save_config(dict(config), config_path=made[name] / "config.json")
        make_tokenizer(made[name])
    done.touch()
    return made


def make_tokenizer(folder):
    """A byte-level BPE over printable ASCII, so that every token is text by itself; a common word is one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    rng = random.Random(7)
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    coined = ["".join(rng.choices(letters, weights=range(26, 0, -1), k=rng.randint(2, 9))) for _ in range(60000)]
    # The words that `omnibus bench serve` sends, so that a word is a token.
    common = prompt_words() * 400
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = [letter for letter in pre_tokenizers.ByteLevel.alphabet() if letter.isascii() or letter == "Ġ"]
    trainer = trainers.BpeTrainer(vocab_size=END, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator([" " + " ".join(coined), " " + " ".join(common)], trainer)
    filler = [f"<|{index}|>" for index in range(tokenizer.get_vocab_size(), END)]
    tokenizer.add_special_tokens(filler + ["<|end|>"])
    assert tokenizer.token_to_id("<|end|>") == END, "the tokenizer has as many tokens as the model"
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    config = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|end|>", chat_template=template,
                  model_max_length=COMMON["max_position_embeddings"])
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def prompt_words():
    return ("the of and to in is that it was for on are with as his they at be this from have or by one had not but "
            "what all were when we there can an your which their said if do will each about how up out them then she "
            "many some so these would other into has more her two like him time").split()


def prose(rng, count):
    """`count` words, each after a space, and each a token of the test models."""
    return "".join(f" {word}" for word in rng.choices(prompt_words(), k=count))


# --- servers

@dataclasses.dataclass
class Server:
    """A command that serves `model` over OpenAI's API; `--host` and `--port` are appended."""

    name: str
    command: list
    model: str


@dataclasses.dataclass
class Running:
    url: str
    process: subprocess.Popen

    def end(self, how=signal.SIGTERM):
        """Sends the signal and waits for the process to exit."""
        self.process.send_signal(how)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def omnibus(binary, model, *flags, name="omnibus"):
    """On a CPU, with the served name `bench`; `model` None is the embedded one."""
    directory = [] if model is None else [str(model)]
    command = [str(binary), "serve", *directory, "--served-model-name", "bench", "--device", "cpu", "--log", "error"]
    return Server(name, command + [str(flag) for flag in flags], "bench")


def mlx_lm(python, model, *flags, name="mlx-lm"):
    command = [str(python), "-m", "mlx_lm", "server", "--model", str(model), "--log-level", "ERROR"]
    return Server(name, command + [str(flag) for flag in flags], str(model))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(server, log, patience_s=120):
    """Runs the server until the block ends, and enters the block when it answers; the block may end it earlier."""
    port = free_port()
    command = [*server.command, "--host", "127.0.0.1", "--port", str(port)]
    environment = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    running = Running(f"http://127.0.0.1:{port}", process)
    try:
        wait_until_up(running, patience_s)
        yield running
    finally:
        if process.poll() is None:
            running.end()


def wait_until_up(running, patience_s):
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if running.process.poll() is not None:
            sys.exit(f"the server ended with {running.process.returncode} before it answered; see the log")
        with contextlib.suppress(OSError, http.client.HTTPException):
            if get(running.url, "/health").status < 500:
                return
        time.sleep(0.01)
    sys.exit(f"the server did not answer within {patience_s} s; see the log")


def family(pid):
    """The process and its descendants (Linux only); a server may run its engine in a child."""
    parents = collections.defaultdict(list)
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may contain any character.
            parents[int(entry.read_text().rpartition(")")[2].split()[1])].append(int(entry.parent.name))
    found = [pid]
    for process in found:
        found.extend(parents[process])
    return found


def cpu_seconds(pid):
    """CPU seconds of a process and its descendants so far (Linux only)."""
    ticks = 0
    for process in family(pid):
        user, system = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
        ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


def thread_seconds(pid, name):
    """CPU seconds of the threads of this name, of a process and its descendants (Linux only)."""
    nanoseconds = 0
    for process in family(pid):
        for thread in pathlib.Path(f"/proc/{process}/task").iterdir():
            # The system keeps fifteen characters of a name.
            if (thread / "comm").read_text().strip() == name[:15]:
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def resident_bytes(pid):
    """Resident memory of a process and its descendants (Linux only)."""
    pages = (int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]) for process in family(pid))
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid):
    """How many files and sockets the process and its descendants have open."""
    return sum(len(os.listdir(f"/proc/{process}/fd")) for process in family(pid))


# --- the client

@dataclasses.dataclass
class Answer:
    """Times are `time.monotonic`'s. Status 0 is no response at all; `error` has the reason."""

    sent: float
    status: int = 0
    headers: dict = dataclasses.field(default_factory=dict)
    times: list = dataclasses.field(default_factory=list)  # when each piece of text arrived
    text: str = ""
    usage: dict = dataclasses.field(default_factory=dict)
    ended: float = 0.0
    error: str = ""

    @property
    def ttft_s(self):
        return self.times[0] - self.sent

    @property
    def cached_tokens(self):
        """None where the server does not report it."""
        return (self.usage.get("prompt_tokens_details") or {}).get("cached_tokens")


def connect(url, timeout_s):
    place = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(place.hostname, place.port, timeout=timeout_s)


def get(url, path):
    """An `Answer` with the body as its text."""
    answer = Answer(sent=time.monotonic())
    with contextlib.closing(connect(url, 10)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        answer.status, answer.text = response.status, response.read().decode()
    return answer


def send(url, body, path="/v1/completions", until=None, on_text=None, timeout_s=1800):
    """Sends a request and reads the response to its end, or until `until` is set; calls `on_text` for each piece."""
    answer = Answer(sent=time.monotonic())
    try:
        with contextlib.closing(connect(url, timeout_s)) as connection:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            answer.status, answer.headers = response.status, {k.lower(): v for k, v in response.getheaders()}
            if answer.status == 200 and body.get("stream"):
                read_stream(response, answer, until, on_text)
            else:
                read_body(response.read(), answer)
    except (OSError, http.client.HTTPException) as error:
        answer.error = answer.error or repr(error)
    answer.ended = time.monotonic()
    return answer


def read_stream(response, answer, until, on_text):
    for line in response:
        now = time.monotonic()
        if until is not None and until.is_set():
            return
        if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
            continue
        chunk = json.loads(line[5:])
        if chunk.get("error"):
            answer.error = json.dumps(chunk["error"])
        answer.usage = chunk.get("usage") or answer.usage
        for piece in map(text_of, chunk.get("choices") or []):
            if piece:
                answer.times.append(now)
                answer.text += piece
                if on_text is not None:
                    on_text()


def read_body(body, answer):
    if answer.status != 200:
        answer.error = body.decode(errors="replace")
        return
    content = json.loads(body)
    answer.usage = content.get("usage") or {}
    answer.text = "".join(map(text_of, content.get("choices", [])))


def text_of(choice):
    message = choice.get("delta") or choice.get("message") or {}
    return choice.get("text") or message.get("content") or message.get("reasoning_content") or ""


def streaming(server, tokens, **fields):
    """A greedy streamed request with usage in its last chunk."""
    return dict(model=server.model, max_tokens=tokens, temperature=0, stream=True,
                stream_options=dict(include_usage=True), **fields)


def together(calls):
    """Runs the functions at once, each on a thread, and returns their results."""
    results = [None] * len(calls)
    gate = threading.Barrier(len(calls))

    def run(index):
        gate.wait()
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def pool(calls, size):
    """Runs the functions on `size` threads and returns their results."""
    queue, results = collections.deque(enumerate(calls)), [None] * len(calls)

    def work():
        with contextlib.suppress(IndexError):
            while True:
                index, call = queue.popleft()
                results[index] = call()

    together([work] * size)
    return results


def completed(answers):
    """The answers; exits when one of them failed."""
    for answer in answers:
        if answer.status != 200 or answer.error:
            sys.exit(f"a request failed with {answer.status}: {answer.error}")
    return answers


# --- metrics and status

def metrics(url):
    """Every metric by name, summed over its labels."""
    values = collections.defaultdict(float)
    for line in get(url, "/metrics").text.splitlines():
        if line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            values[series.partition("{")[0]] += float(value)
    return values


def status(url):
    return json.loads(get(url, "/v1/status").text)


def wait_until(condition, patience_s, what, pause_s=0.05):
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not within {patience_s} s: {what}")
        time.sleep(pause_s)


# --- results

def arguments(about, **defaults):
    """The options of all scripts; `defaults` adds others."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--omnibus", type=pathlib.Path, default=HERE.parent / "target/release/omnibus",
                        help="the binary (cargo build --release)")
    parser.add_argument("--python", default=sys.executable, help="a Python that has mlx-lm")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "out", help="models, logs and results")
    for name, (default, text) in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default,
                            help=f"{text} (default {default})")
    return parser


def compare_arguments(about, **defaults):
    """The same for scripts that compare binaries; `--omnibus` is not used then."""
    parser = arguments(about, **defaults)
    parser.add_argument("--binary", action="append", type=pathlib.Path,
                        help="a binary to measure; may be repeated (default: the release binary)")
    return parser


def begin(parser):
    """Parses the options and makes the folder for results. `options.binary` is a list where the script has it."""
    options = parser.parse_args()
    binaries = getattr(options, "binary", None) or [options.omnibus]
    for binary in binaries:
        if not binary.exists():
            sys.exit(f"{binary} does not exist: cargo build --release")
    options.binary = binaries
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def log_line(text):
    print(text, file=sys.stderr, flush=True)


def quantile(values, share):
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


def spread(values):
    """`median (least to most)`, in milliseconds."""
    low, middle, high = (1e3 * value for value in (min(values), statistics.median(values), max(values)))
    return f"{middle:.0f} ms ({low:.0f} to {high:.0f})" if len(values) > 1 else f"{middle:.0f} ms"


def table(header, rows):
    """Markdown; the first column is left-aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def finish(script, options, results, tables, remarks):
    """Writes `results` as JSON and the tables as Markdown, with the conditions below them; prints the Markdown."""
    name = pathlib.Path(script).stem
    below = textwrap.fill(f"{remarks} {conditions()}", 118, break_long_words=False, break_on_hyphens=False)
    text = "\n\n".join([*tables, below]) + "\n"
    (options.out / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n")
    (options.out / f"{name}.md").write_text(text)
    print(text, end="")


def conditions():
    load = f", load {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    return f"{datetime.date.today()}; {machine()}{load}."


def machine():
    with contextlib.suppress(OSError):
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return f"{platform.machine()}, {os.cpu_count()} cores"


def versions(*packages):
    """The installed versions of Python packages."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
