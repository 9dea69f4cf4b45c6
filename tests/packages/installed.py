#!/usr/bin/env python3
"""Installs what `cargo xtask dist` made as a user would, and talks to the server.

    cargo xtask dist && python3 tests/packages/installed.py [FOLDER]

Each package goes into a new folder. Where root runs this, a user without rights installs and starts it. That user has no cache, and
no compiler: the search path has the package's own programs alone. Every server must answer the request that it prints at its start.
"""

import json
import os
import pathlib
import pwd
import shlex
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A Python that other users can run.
PYTHON = "/usr/bin/python3"
# The user without rights.
UNPRIVILEGED = 65534
# How pip reaches its registry, if it needs more than its own settings.
PASSED = ("PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")


class User:
    """Runs programs in a new folder, as another user if it can."""

    def __init__(self, folder, search_path):
        self.folder = pathlib.Path(folder)
        self.search_path = search_path
        self.other = pwd.getpwuid(UNPRIVILEGED) if os.geteuid() == 0 else None
        if self.other:
            os.chown(folder, self.other.pw_uid, self.other.pw_gid)
            self.folder.chmod(0o755)

    def options(self):
        environment = {name: os.environ[name] for name in PASSED if name in os.environ}
        environment |= {"HOME": str(self.folder), "PATH": self.search_path, "PIP_NO_CACHE_DIR": "1"}
        options = {"env": environment, "cwd": self.folder, "stdin": subprocess.DEVNULL, "text": True}
        if self.other:
            options |= {"user": self.other.pw_uid, "group": self.other.pw_gid, "extra_groups": []}
        return options

    def run(self, *command, code=0):
        ended = subprocess.run(command, capture_output=True, check=False, **self.options())
        assert ended.returncode == code, f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    def check_server(self, program):
        """Starts a server, and sends the request that it prints."""
        assert self.run(program, "--version").startswith("omnibus ")
        command = [program, "serve", "--port", "0"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, **self.options())
        try:
            lines = []
            for line in server.stderr:
                lines.append(line)
                if line.startswith("curl "):
                    break
            assert lines and lines[-1].startswith("curl "), "".join(lines)
            words = shlex.split(lines[-1])
            request = urllib.request.Request(words[1], words[words.index("-d") + 1].encode())
            request.add_header("content-type", "application/json")
            with urllib.request.urlopen(request, timeout=120) as answer:
                message = json.load(answer)["choices"][0]["message"]
            assert message["content"], message
        finally:
            server.terminate()
            assert server.wait(60) == 0, "the server did not end in order"


def check_wheel(wheel):
    with tempfile.TemporaryDirectory() as folder:
        user = User(folder, f"{folder}/venv/bin")
        assert not any(os.access(f"{folder}/venv/bin/{name}", os.X_OK) for name in ("cc", "c++", "g++"))
        user.run(PYTHON, "-m", "venv", f"{folder}/venv")
        pip, program = [f"{folder}/venv/bin/python", "-m", "pip"], f"{folder}/venv/bin/omnibus"
        user.run(*pip, "install", "--quiet", str(wheel))
        said = user.run(program, "doctor", code=1)
        assert "pip install mlx-cpu==" in said, said
        said = user.run(program, "serve", "--port", "0", code=1)
        assert said.startswith("error: this command needs libmlx: ") and "pip install mlx-cpu==" in said, said
        user.run(program, "models")
        print("ok: the wheel without libmlx starts, and says what to install")
        user.run(*pip, "install", "--quiet", f"{wheel}[cpu]")
        said = user.run(program, "doctor")
        assert f"{folder}/venv/lib/python3" in said, said
        user.check_server(program)
        # As `uv tool` and `pipx` do it.
        os.symlink(program, f"{folder}/linked")
        user.check_server(f"{folder}/linked")
        print("ok: the wheel with libmlx serves")


def check_unpacked(package, *unpack, program):
    with tempfile.TemporaryDirectory() as folder:
        user = User(folder, "/nowhere")
        subprocess.run([*unpack, folder], check=True, stdin=subprocess.DEVNULL)
        user.check_server(str(next(pathlib.Path(folder).glob(program))))
        print(f"ok: {package.name} serves")


def main():
    # Another user reads the packages.
    made = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/dist/out")
    with tempfile.TemporaryDirectory() as copies:
        os.chmod(copies, 0o755)
        for package in made.iterdir():
            if package.is_file():
                (pathlib.Path(copies) / package.name).write_bytes(package.read_bytes())
        sums = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copies, check=False)
        assert sums.returncode == 0, "a checksum is wrong"
        [wheel] = pathlib.Path(copies).glob("*.whl")
        check_wheel(wheel)
        [archive] = pathlib.Path(copies).glob("*-linux.tar.xz")
        check_unpacked(archive, "tar", "-xf", archive, "-C", program="*/bin/omnibus")
        [package] = pathlib.Path(copies).glob("*.deb")
        subprocess.run(["dpkg-deb", "--info", package], check=True, stdout=subprocess.DEVNULL)
        check_unpacked(package, "dpkg-deb", "-x", package, program="usr/bin/omnibus")


main()
