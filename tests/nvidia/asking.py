"""Asks the driver libraries that the loader finds what they answer without a card; prints JSON.

    LD_LIBRARY_PATH=FOLDER python asking.py [--record FILE]

- `lookups`: the answers of cuGetProcAddress_v2 for each base name: which exported name from which
  CUDA version on, or which status if there is none; `per_thread` if the flag for per-thread default
  streams makes a difference.
- `refusals`: what each function returns before cuInit to a call with all arguments zero. A function
  that checks an argument before it checks whether the driver is initialised shows here how it
  judges the argument; the others return 3 (CUDA_ERROR_NOT_INITIALIZED). Each is called in a fork,
  because some read what a null pointer points to; then the answer is the signal's number, negative.
- `errors`: names of error codes.
- `nvml`: what each function of libnvidia-ml.so.1 returns to zeros before nvmlInit, likewise.
"""

import argparse
import ctypes
import json
import os
import re
import signal
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "csrc"
API = SOURCES / "api"
NVML_NAMES = SOURCES / "softgpu" / "nvml" / "names.inc"
NVML_OTHERS = ("nvmlErrorString", "nvmlInit")  # returns no code; is what the others need first
SUFFIX = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
# CUDA versions, with one before the first and one after the last.
VERSIONS = [0, *(1000 * major + 10 * minor for major in range(2, 14) for minor in range(10)), 99990]
FLAGS = {"plain": (0, 1), "per_thread": (2, 3)}  # the second of each has the same meaning
PATIENCE_S = 10
MOST_ARGUMENTS = 12


def newest_listing():
    return max(API.glob("*.txt"), key=lambda path: tuple(map(int, path.stem.split("."))))


class Library:
    def __init__(self):
        self.calls = ctypes.CDLL("libcuda.so.1")
        listed = newest_listing().read_text().split()
        addresses = {name: self._address(name) for name in listed}
        self.exported = {name: address for name, address in addresses.items() if address}
        self.named = {address: name for name, address in self.exported.items()}

    def _address(self, name):
        function = getattr(self.calls, name, None)
        return ctypes.cast(function, ctypes.c_void_p).value if function else None

    def version(self):
        version = ctypes.c_int()
        assert self.calls.cuDriverGetVersion(ctypes.byref(version)) == 0
        return version.value

    def look_up(self, base, version, flags):
        """Return the exported name, or the status."""
        found, status = ctypes.c_void_p(), ctypes.c_int(-1)
        code = self.calls.cuGetProcAddress_v2(
            base.encode(),
            ctypes.byref(found),
            version,
            ctypes.c_uint64(flags),
            ctypes.byref(status),
        )
        assert code == 0, (base, version, flags, code)
        if not found.value:
            return status.value
        assert status.value == 0, (base, version, flags, status.value)
        return self.named.get(found.value, "not exported")

    def lookups(self):
        """Return for each base name [version, answer] wherever the answer changes."""
        bases = {SUFFIX.sub("", name) for name in self.exported} | set(self.exported)
        answers = {}
        for base in sorted(bases | {"", "cuNope"}):
            kinds = {kind: self._changes(base, FLAGS[kind]) for kind in FLAGS}
            if kinds["per_thread"] == kinds["plain"]:
                del kinds["per_thread"]
            answers[base] = kinds
        return answers

    def _changes(self, base, flags):
        changes = []
        for version in VERSIONS:
            answer, other = (self.look_up(base, version, each) for each in flags)
            assert answer == other, (base, version)
            if not changes or changes[-1][1] != answer:
                changes.append([version, answer])
        return changes

    def refusals(self):
        return {name: refusal(getattr(self.calls, name)) for name in sorted(self.exported)}

    def errors(self):
        text = ctypes.c_char_p()
        names = {}
        for code in range(1000):
            if self.calls.cuGetErrorName(code, ctypes.byref(text)) == 0:
                names[str(code)] = text.value.decode()
        return names


def refusal(function):
    """Call a function with zeros in a fork; return its result or the negative signal."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)
        code = with_zeros(function)
        os.write(writing, str(code).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        code = answer.read()
    status = os.waitpid(child, 0)[1]
    return int(code) if code else -os.WTERMSIG(status)


def with_zeros(function):
    function.restype = ctypes.c_int
    return function(*[ctypes.c_void_p(0)] * MOST_ARGUMENTS)


def nvml_functions():
    library = ctypes.CDLL("libnvidia-ml.so.1")
    names = re.findall(r"NVML_NAME\((\w+)\)", NVML_NAMES.read_text())
    functions = {name: getattr(library, name, None) for name in sorted(names)}
    return {n: f for n, f in functions.items() if f and not n.startswith(NVML_OTHERS)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, metavar="FILE", help="write there, a line an answer")
    record = parser.parse_args().record
    library = Library()
    said = {
        "cuda": library.version(),
        "lookups": library.lookups(),
        "refusals": library.refusals(),
        "errors": library.errors(),
        "nvml": {name: refusal(function) for name, function in nvml_functions().items()},
    }
    if record:
        record.write_text(readable(said))
    else:
        json.dump(said, sys.stdout)


def readable(said):
    """Return JSON with one line per name, so that two versions can be compared."""
    parts = [f'"cuda": {said["cuda"]}']
    for part in ("lookups", "refusals", "errors", "nvml"):
        rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in said[part].items())
        parts.append(f'"{part}": {{\n' + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
