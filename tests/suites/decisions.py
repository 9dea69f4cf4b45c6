"""Runs jevcompat on a server with the embedded model.

Usage: decisions.py JEVCOMPAT URL
The prompt of 255 described options is longer than the context of the embedded model, which is the one requirement that may
fail: crates/cli/tests/binary/decisions.rs has 255 shorter ones.
"""

import json
import subprocess
import sys
import tempfile

MAY_FAIL = {"choice.options"}

with tempfile.NamedTemporaryFile(suffix=".json") as report:
    subprocess.run([sys.argv[1], "test", sys.argv[2], "--json", report.name], check=False)
    results = json.load(report)["results"]
failed = {result["id"] for result in results if result["status"] == "fail"}
passed = sum(result["status"] == "pass" for result in results)
print(f"{passed} of {len(results)} requirements pass; failed: {sorted(failed)}")
sys.exit(not failed <= MAY_FAIL or passed < 40)
