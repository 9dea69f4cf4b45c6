"""Compiles CUDA texts with NVRTC, without a GPU: LIBRARY INCLUDES ARCHITECTURE=FILE... (an architecture for each file).

Prints the first errors of each text that does not compile, and exits with 1 if there is one.
"""

import ctypes
import multiprocessing
import os
import sys


def compiled(library, includes, architecture, path):
    """The compiler's messages, or None if the text compiles."""
    nvrtc = ctypes.CDLL(library)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    with open(path, "rb") as file:
        if nvrtc.nvrtcCreateProgram(ctypes.byref(program), file.read(), b"kernel.cu", 0, None, None):
            return "NVRTC made no program"
    # As the shim of mlx-sys compiles them.
    options = [f"--include-path={folder}" for folder in includes.split(os.pathsep)]
    options += ["--device-as-default-execution-space", f"--gpu-architecture={architecture}"]
    # The texts begin with one header, which is read once.
    options.append("--pch")
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), arguments)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if not failed:
        return None
    errors = [line for line in log.value.decode().splitlines() if "error" in line]
    return "\n".join(errors[:3]) or f"NVRTC gave error {failed}"


def main():
    library, includes, *files = sys.argv[1:]
    work = [(library, includes, *file.split("=", 1)) for file in files]
    with multiprocessing.Pool() as pool:
        results = pool.starmap(compiled, work, chunksize=4)
    failures = [(item, why) for item, why in zip(work, results) if why]
    for (_, _, architecture, path), why in failures:
        print(f"{os.path.basename(path)} does not compile for {architecture}:\n{why}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
