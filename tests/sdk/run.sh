#!/bin/sh
# The SDKs of OpenAI, Anthropic and Ollama, of Python and of JavaScript where npm is reachable, against new servers: with the
# embedded model, and with one that says given texts; and the types of their requests, field by field.
# Then schemathesis sends what /openapi.json allows, and much that it does not.
# Usage: tests/sdk/run.sh [path of the omnibus binary]
# Packages have the versions of requirements.txt and package-lock.json, and stay in the folder of builds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-$here/../../target/release/omnibus}
work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# Starts a server; its address is in $url.
start() {
    : >"$work/log"
    "$binary" serve "$@" --port 0 --log error 2>"$work/log" &
    server=$!
    url=
    while [ -z "$url" ]; do
        kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
        url=$(sed -n 's/.*\(http:\/\/[^ /]*\).*/\1/p' "$work/log" | head -n 1)
        [ -n "$url" ] || sleep 0.1
    done
}

stop() {
    kill -TERM "$server"
    wait "$server"
    server=
}

builds=${CARGO_TARGET_DIR:-$here/../../target}
mkdir -p "$builds"
builds=$(cd "$builds" && pwd)
# The folder for what a list of packages installs with a program of this version.
kept() {
    echo "$builds/sdk/$({ cat "$1"; "$2" --version; } | git hash-object --stdin | cut -c 1-16)"
}

venv=$(kept "$here/requirements.txt" python3)
if ! [ -e "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    # Most modules of the packages are never loaded: they need no bytecode.
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile -r "$here/requirements.txt"
    touch "$venv/complete"
fi

start
"$venv/bin/python" "$here/openai_sdk.py" "$url/v1"
"$venv/bin/python" "$here/request_types.py" "$url"
stop

start --state-dir "$work/state"
"$venv/bin/python" "$here/batches.py" "$url"
stop

"$venv/bin/python" "$here/speech_model.py" "$work/speech" "$work/speech.wav"
start "$work/speech" --kv-cache-memory 64MiB
"$venv/bin/python" "$here/speech.py" "$url/v1" "$work/speech.wav"
stop

python3 "$here/../clients/scripted_model.py" "$work/model" --file "$work/hello.txt" --word PINEAPPLE
start "$work/model" --kv-cache-memory 256MiB
"$venv/bin/python" "$here/agents.py" "$url" "$work/hello.txt" PINEAPPLE
"$venv/bin/python" "$here/ollama_sdk.py" "$url" "$work/hello.txt" PINEAPPLE
if command -v node >/dev/null && command -v npm >/dev/null; then
    js=$(kept "$here/package-lock.json" node)
    if ! [ -e "$js/complete" ] && npm ping >/dev/null 2>&1; then
        mkdir -p "$js"
        cp "$here/package.json" "$here/package-lock.json" "$js"
        npm ci --silent --no-audit --no-fund --prefix "$js"
        touch "$js/complete"
    fi
    if [ -e "$js/complete" ]; then
        cp "$here/agents.mjs" "$here/ollama.mjs" "$here/request_types.mjs" "$js"
        for script in agents ollama; do
            node "$js/$script.mjs" "$url" "$work/hello.txt" PINEAPPLE
        done
        node "$js/request_types.mjs" >"$work/cases.json"
        "$venv/bin/python" "$here/request_types.py" "$url" "$work/cases.json"
    else
        echo "skipped: JavaScript's SDKs, because npm is not reachable"
    fi
else
    echo "skipped: JavaScript's SDKs, because there is no node"
fi
"$venv/bin/python" -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())' \
    "$url/openapi.json" >"$work/openapi.json"
"$venv/bin/openapi-spec-validator" "$work/openapi.json"
# A WebSocket is not for it. It leaves a folder where it runs.
cd "$work"
"$venv/bin/schemathesis" run "$url/openapi.json" --exclude-path /v1/stream -n 20 --no-color \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance
stop
