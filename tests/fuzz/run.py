"""Runs the libFuzzer targets: python tests/fuzz/run.py [--seconds N] [codec|dag|sample...].

Findings and the grown corpus go to build/fuzz/; tests/fuzz/corpus/ holds the inputs to start from.
The ordinary tests drive the same bodies from fixed seeds and need no clang.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "csrc"))

import ninja_build

HERE = ROOT / "tests" / "fuzz"
OUT = ROOT / "build" / "fuzz"
# Target -> the folders of the sources linked with it, and its include flags.
TARGETS = {
    "codec": (["csrc/core/daemon", "csrc/core/dag"], ["-Icsrc/core"]),
    "state": (["csrc/core/daemon", "csrc/core/dag"], ["-Icsrc/core"]),
    "sample": (["csrc/core/daemon", "csrc/core/dag"], ["-Icsrc/core"]),
    "name": (["csrc/core/daemon", "csrc/core/dag"], ["-Icsrc/core"]),
    "dag": (["csrc/core/dag"], ["-Icsrc/core"]),
    "ptx": (["csrc/softgpu/ptx"], ["-Icsrc/softgpu", f"-isystem{ninja_build.cuda_include()}"]),
    "device": (["csrc/softgpu/device"], ["-Icsrc/softgpu", "-Icsrc/softgpu/device"]),
}
FLAGS = [
    "-std=c++17",
    "-O1",
    "-g",
    "-pthread",
    "-fsanitize=fuzzer,address,undefined",
    "-fno-sanitize-recover=undefined",
]
NEEDS = "apt-get install clang libclang-rt-14-dev (the latter in clang's own version)"


def find_clang() -> str:
    """Return the compiler if it can link a fuzzer; else print one line and exit with code 1."""
    clang = shutil.which("clang++")
    if clang is None:
        sys.exit(f"error: clang++ not found; {NEEDS}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(
            'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }\n'
        )
        probe = [clang, *FLAGS, str(source), "-o", str(Path(folder) / "probe")]
        if subprocess.run(probe, capture_output=True, check=False, cwd=ROOT).returncode != 0:
            sys.exit(f"error: {clang} cannot link a fuzzer; {NEEDS}")
    return clang


def build(clang: str, target: str) -> Path:
    """Compile one fuzzer with everything it may call.

    Raises:
        subprocess.CalledProcessError: it does not compile; the compiler's output is on stderr.
    """
    folders, includes = TARGETS[target]
    found = [source for folder in folders for source in sorted((ROOT / folder).glob("*.cpp"))]
    sources = [source for source in found if source.name != "main.cpp"]
    program = OUT / f"{target}_fuzzer"
    command = [clang, *FLAGS, *includes, *map(str, sources), str(HERE / f"{target}_fuzzer.cpp")]
    subprocess.run([*command, "-o", str(program)], check=True, cwd=ROOT)
    return program


def fuzz(program: Path, target: str, seconds: int) -> bool:
    """Fuzz for that long; return False if something was found."""
    grown = OUT / "corpus" / target
    grown.mkdir(parents=True, exist_ok=True)
    command = [str(program), str(grown), str(HERE / "corpus" / target)]
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={OUT}/{target}-", "-timeout=10"]
    return subprocess.run([*command, *options], check=False, cwd=ROOT).returncode == 0


def main() -> int:
    """Build and run the fuzzers; return 1 if one found something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=[])
    arguments = parser.parse_args()
    targets = arguments.targets or list(TARGETS)
    if unknown := set(targets) - set(TARGETS):
        known = ", ".join(TARGETS)
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {known}")
    if arguments.seconds < 1:
        parser.error(f"--seconds is {arguments.seconds}, must be at least 1")
    clang = find_clang()
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        programs = {target: build(clang, target) for target in targets}
    except subprocess.CalledProcessError:
        return 1
    failed = [t for t, program in programs.items() if not fuzz(program, t, arguments.seconds)]
    for target in failed:
        print(f"{target}: found something, see build/fuzz/{target}-*")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
