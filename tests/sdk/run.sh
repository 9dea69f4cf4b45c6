#!/bin/sh
# Runs tests/sdk/openai_sdk.py against a new server. Usage: tests/sdk/run.sh [path of the omnibus binary]
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

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'openai>=1,<3'

"$binary" serve --port 0 --log error 2>"$work/log" &
server=$!
url=
while [ -z "$url" ]; do
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
    url=$(sed -n 's/.*\(http:\/\/[^ /]*\).*/\1/p' "$work/log" | head -n 1)
    [ -n "$url" ] || sleep 0.1
done
"$work/venv/bin/python" "$here/openai_sdk.py" "$url/v1"
kill -TERM "$server"
wait "$server"
server=
