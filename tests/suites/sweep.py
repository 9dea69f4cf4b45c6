"""guidellm's sweep of rates against a running server: every benchmark ends with answers, and no request fails.

    sweep.py GUIDELLM URL MODEL

GUIDELLM is the program's path, MODEL the folder of the model that is served, whose tokenizer it uses.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

SECONDS = 8


def main():
    program, url, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        options = {
            "backend": f"kind=openai_http,target={url}",
            "profile": "kind=sweep,sweep_size=4",
            "constraint": f"kind=max_duration,seconds={SECONDS}",
            "tokenizer": f"kind=huggingface_auto,model={model}",
            "data": "kind=synthetic_text,prompt_tokens=64,output_tokens=16",
            "output": f"kind=json,path={report}",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        subprocess.run([program, "run", *arguments, "--disable-console"], env=environment, check=True)
        benchmarks = json.loads(report.read_text())["benchmarks"]
    totals = [benchmark["metrics"]["request_totals"] for benchmark in benchmarks]
    print("guidellm:", totals)
    sys.exit(not all(total["successful"] > 0 and total["errored"] == 0 for total in totals))


if __name__ == "__main__":
    main()
