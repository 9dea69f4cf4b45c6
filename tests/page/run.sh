#!/bin/bash
# The page in a real browser: what a user does there, with the keyboard, in both colour schemes, on a phone's width, and what an
# accessibility checker finds. Needs npm and Chromium (`chromium`, or CHROMIUM=path). With --screenshots the pictures of
# docs/page.md are made. Usage: tests/page/run.sh [--screenshots] [path of the omnibus binary]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
screenshots=
if [ "${1:-}" = --screenshots ]; then
    screenshots=$here/../../docs/screenshots
    shift
fi
binary=${1:-$here/../../target/release/omnibus}
chromium=${CHROMIUM:-$(command -v chromium || command -v google-chrome || true)}
[ -n "$chromium" ] || { echo "skipped: there is no Chromium"; exit 0; }
npm ping >/dev/null 2>&1 || { echo "skipped: npm is not reachable"; exit 0; }
packages=${PREFIX:-$here/../../target/page}
mkdir -p "$packages"
cp "$here/package.json" "$packages/"
cp "$here"/*.mjs "$packages/"
(cd "$packages" && npm install --silent --no-audit --no-fund)
MCP_SERVER="$here/../../crates/testing/mcp_servers/scripted.py" MODEL="$here/../../crates/cli/models/omnibus-mini" \
    BINARY="$binary" CHROMIUM="$chromium" SCREENSHOTS="$screenshots" node --test --test-timeout 300000 "$packages/page.test.mjs"
