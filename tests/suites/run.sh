#!/bin/sh
# What others test servers with, from packages: LangChain's standard tests, pydantic-ai and instructor, jevcompat for
# decisions, vectors and ranking by the clients of Cohere, LangChain and LlamaIndex, LiteLLM, guidellm's sweep, the cases of
# Open Responses, chats through the gateways sglang-router, vllm-router and smg in front of two servers, and the schemas of
# Kubernetes. Servers have the embedded model; for Open Responses it has a vision tower.
# Usage: tests/suites/run.sh [path of the omnibus binary]
# Each list of packages has an environment of its own, which stays in the folder of builds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-$here/../../target/release/omnibus}
builds=${CARGO_TARGET_DIR:-$here/../../target}
mkdir -p "$builds"
builds=$(cd "$builds" && pwd)
work=$(mktemp -d)
servers=
cleanup() {
    for server in $servers; do kill "$server" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT

# The environment with the packages of a list, made if it is not there yet.
environment() {
    list=$here/$1.txt
    venv=$builds/suites/$({ cat "$list"; python3 --version; } | git hash-object --stdin | cut -c 1-16)
    if ! [ -e "$venv/complete" ]; then
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$list"
        touch "$venv/complete"
    fi
}

# Starts a server with a log of this name, and with more arguments; its address is in $url.
start() {
    log=$work/log-$1
    shift
    "$binary" serve --port 0 --log error "$@" 2>"$log" &
    server=$!
    servers="$servers $server"
    url=
    while [ -z "$url" ]; do
        kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
        url=$(sed -n 's/.*\(http:\/\/[^ /]*\).*/\1/p' "$log" | head -n 1)
        [ -n "$url" ] || sleep 0.1
    done
}

environment kubernetes
"$venv/bin/python" "$here/kubernetes.py"

start first
first=$url
start second
second=$url
cd "$work"

environment langchain
OMNIBUS_URL=$first "$venv/bin/python" -m pytest -q -p no:cacheprovider -o asyncio_mode=auto \
    -o asyncio_default_test_loop_scope=session -o asyncio_default_fixture_loop_scope=session "$here/test_langchain.py"

environment instructor
"$venv/bin/python" "$here/instructed.py" "$first"

environment pydantic-ai
"$venv/bin/python" "$here/agents_of_pydantic.py" "$first"

environment jevcompat
"$venv/bin/python" "$here/decisions.py" "$venv/bin/jevcompat" "$first"

environment vectors
"$venv/bin/python" "$here/vectors.py" "$first"

environment litellm
LITELLM_LOCAL_MODEL_COST_MAP=True "$venv/bin/python" "$here/through_litellm.py" "$first"

environment guidellm
"$venv/bin/python" "$here/sweep.py" "$venv/bin/guidellm" "$first" "$here/../../crates/cli/models/omnibus-mini"

environment open_responses
"$venv/bin/python" "$here/seeing_model.py" "$here/../../crates/cli/models/omnibus-mini" "$work/seeing"
start seeing "$work/seeing"
"$venv/bin/python" "$here/open_responses.py" "$url" seeing

environment gateways
for gateway in sglang-router vllm-router smg; do
    "$venv/bin/python" "$here/gateways.py" "$venv/bin/$gateway" "$first" "$second"
done
