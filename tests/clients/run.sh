#!/bin/bash
# Real clients, unchanged, against a server whose model calls their tool that reads a file: Claude Code, Codex, opencode,
# Qwen Code, the AI SDK and Python's LiteLLM, LangChain, LlamaIndex and Agents SDK. Needs a folder with a script
# `run_CLIENT.sh` for each, which installs it, and npm. Usage: tests/clients/run.sh [path of the omnibus binary]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-$here/../../target/release/omnibus}
scripts=${CLIENT_SCRIPTS:-$here/../../../shared/clients}
clients=${CLIENTS:-claude_code codex opencode qwen_code ai_sdk python_sdks}
[ -d "$scripts" ] || { echo "skipped: $scripts does not exist"; exit 0; }
# The scripts have the versions that they install, and install what is not there yet.
export PREFIX="${PREFIX:-$(cd "$here/../.." && pwd)/target/clients}"
# Most modules of Python's packages are never loaded: they need no bytecode.
export PIP_NO_COMPILE=1
npm ping >/dev/null 2>&1 || { echo "skipped: npm is not reachable"; exit 0; }
work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

export FILE="$work/check/hello.txt" WORD=PINEAPPLE MODEL=scripted
python3 "$here/scripted_model.py" "$work/model" --file "$FILE" --word "$WORD"
"$binary" serve "$work/model" --port 0 --log error --served-model-name "$MODEL" --kv-cache-memory 1GiB 2>"$work/log" &
server=$!
BASE_URL=
while [ -z "$BASE_URL" ]; do
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
    BASE_URL=$(sed -n 's/.*\(http:\/\/[^ /]*\).*/\1/p' "$work/log" | head -n 1)
    [ -n "$BASE_URL" ] || sleep 0.1
done
export BASE_URL
failed=0
for client in $clients; do
    bash "$scripts/run_$client.sh" || failed=$((failed + 1))
done
exit $((failed > 0))
