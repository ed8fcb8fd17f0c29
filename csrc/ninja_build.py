"""Writes build.ninja for every native target and runs ninja on it.

`setup.py` builds the release libraries, `make sanitize` the test programs of the other variants.
One source list serves all: a variant only changes flags and the output folder.

    python csrc/ninja_build.py [--variant release|portable|asan|tsan|fuzz] [TARGET...]

A TARGET is a name in `targets` below, `tests` for all C++ test programs, or `generated` for what is
generated before anything is compiled; without any, all libraries are built. Outputs go to
build/native/<variant>/.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WARNINGS = "-Wall -Wextra -Wpedantic -Wconversion -Wshadow"
# Environment variable that turns warnings into errors. CI sets it; whoever only builds may have a
# compiler that warns about more than ours do.
STRICT = "WERROR"
COMMON = "-std=c++17 -fPIC -fvisibility=hidden -pthread"
# In other people's processes: no exceptions, no RTTI, no libstdc++ at run time.
PRELOADED = "-fno-exceptions -fno-rtti -fno-stack-protector -fomit-frame-pointer"
# Environment variable with the compiler of the portable variant, which targets C libraries older
# than this machine's. That compiler brings their symbol versions and a C++ library that requires no
# others, whereas g++ uses the machine's. The shim needs neither, and its instructions are counted
# as g++ generates them: so g++ compiles it in each variant. packaging/wheel.py sets this.
PORTABLE_CXX = "TANDEM_PORTABLE_CXX"
# Without optimisation, ASan and UBSan programs compile in three quarters of the time and detect no
# less; under TSan that saves next to nothing, and the programs run longer. Two checks would cost
# time and find nothing: sizes of objects, which only an optimiser knows, and types behind virtual
# functions, of which one interface has some, and nothing is cast to or from it.
VARIANTS = {
    "release": ("-O2 -g1", ""),
    "portable": ("-O2", "-Wl,--strip-debug"),
    "asan": (
        "-O0 -g1 -fsanitize=address,undefined -fno-sanitize=object-size,vptr "
        "-fno-sanitize-recover=all",
        "-fsanitize=address,undefined",
    ),
    "tsan": ("-O1 -g1 -fsanitize=thread", "-fsanitize=thread"),
    "fuzz": ("-O1 -g -fsanitize=fuzzer-no-link,address,undefined", "-fsanitize=address,undefined"),
}


# The exported names of the shim, a thousand functions made by macros. Optimising them takes longer
# than anything else, so the shim with planted faults, whose speed does not matter, does without.
ENTRIES = Path("shim/entry.cpp")
# Folder -> how many of its sources are compiled together, so that their includes are compiled once;
# these are most of the cost of each source (pybind11: 8 seconds). Local names must be unique within
# such a folder.
BATCHES = {
    "csrc/bindings": 9,
    "csrc/core/dag": 5,
    "csrc/core/dag/analysis": 8,
    "csrc/core/daemon": 10,
    "csrc/softgpu/device": 9,
    "csrc/softgpu/driver": 5,
    "csrc/softgpu/driver/context": 6,
    "csrc/softgpu/driver/graph": 8,
    "csrc/softgpu/driver/image": 7,
    "csrc/softgpu/driver/memory": 6,
    "csrc/softgpu/driver/module": 5,
    "csrc/softgpu/driver/stream": 7,
    "csrc/softgpu/mps": 6,
    "csrc/softgpu/ptx": 6,
}
# Compiled each by itself: every family of instructions has an Add and a Min of its own.
UNBATCHED = "csrc/softgpu/ptx/ops_*.cpp"
# No multi-threaded program interprets PTX: TSan's programs link what the libraries are made of.
UNWATCHED = "csrc/softgpu/ptx"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One native output: its sources, flags and link options."""

    output: str
    sources: tuple[str, ...]  # globs from the repository root
    flags: str = ""
    # Further globs, with flags of their own; if several match a file, the last one's flags apply.
    others: tuple[tuple[str, str], ...] = ()
    link: str = ""
    compiler: str = "$cxx"  # or "$gxx", which differs only in the portable variant
    inputs: tuple[str, ...] = ()  # further files that force a relink
    runs: tuple[str, ...] = ()  # targets that it starts at run time
    shared: bool = True


def _python_flags() -> str:
    spec = importlib.util.find_spec("pybind11")
    if spec is None or spec.origin is None:
        return ""  # only the binding target needs it, and then fails with a plain message
    include = Path(spec.origin).parent / "include"
    # -Wno-pedantic: PYBIND11_MODULE is a variadic macro used without its optional arguments.
    return f"-isystem {sysconfig.get_path('include')} -isystem {include} -Wno-pedantic"


def cuda_include() -> Path:
    """The folder with cuda.h: TANDEM_CUDA_INCLUDE, the pip package, or /usr/local/cuda."""
    if override := os.environ.get("TANDEM_CUDA_INCLUDE"):
        candidates = [Path(override)]
    else:
        spec = importlib.util.find_spec("nvidia")
        roots = list(spec.submodule_search_locations or []) if spec else []
        candidates = [Path(r) / "cu13" / "include" for r in roots]
        candidates.append(Path("/usr/local/cuda/include"))
    for candidate in candidates:
        if (candidate / "cuda.h").is_file():
            return candidate
    sys.exit(
        f"error: cuda.h not found in {', '.join(map(str, candidates))}; "
        "pip install nvidia-cuda-runtime, or set TANDEM_CUDA_INCLUDE"
    )


def _folders(place: str) -> str:
    """Options for a part's own header folders; not for <>, where memory.h is the system's."""
    top = ROOT / place
    # Only folders with headers: those that Python creates would change every command.
    folders = sorted({header.parent for header in [*top.glob("*.h"), *top.glob("*/*.h")]})
    return " ".join(f"-iquote {folder.relative_to(ROOT)}" for folder in folders)


def _driver_flags() -> str:
    """Flags of the software driver; $lanes turns the lanes of a warp into vector code."""
    cuda = f"-isystem {cuda_include()} -D__CUDA_API_VERSION_INTERNAL"
    return f"-Icsrc/softgpu {_folders('csrc/softgpu/driver')} -Ibuild/generated {cuda} $lanes"


def _shim_flags() -> str:
    cuda = f"-isystem {cuda_include()} -D__CUDA_API_VERSION_INTERNAL"
    return f"-Icsrc/core {_folders('shim')} -Ibuild/generated {cuda}"


# CUDA versions older than the header: tests run the software driver as a driver of each.
OLD_DRIVERS = ("12.0", "12.2", "12.4", "12.5", "12.8")

# Generator -> files that it writes to build/generated, from cuda.h and the tables.
GENERATED = {
    "csrc/softgpu/generate_table.py": (
        "cu_versions.inc",
        "softgpu_names.inc",
        "softgpu_per_thread.inc",
        *(f"softgpu_{version}.map" for version in OLD_DRIVERS),
    ),
    "shim/generate_coverage.py": ("coverage.inc",),
    "shim/generate_entries.py": (
        "shim_calls.inc",
        "shim_entries.inc",
        "shim_signatures.json",
        "trace_calls.inc",
    ),
    "shim/generate_versions.py": ("shim_versions.inc",),
}

EXPORTS = "csrc/exports.map"
OF_A_VERSION = "csrc/softgpu/cuda_version.cpp"
OURS_ALONE = f"-Wl,--version-script={EXPORTS}"
DEVICE_FLAGS = "-Icsrc/softgpu"
CORE_FLAGS = "-Icsrc/core"


def targets() -> dict[str, Target]:
    """Every library and program, by the name that `setup.py` and the Makefile use."""
    cuda = f"-isystem {cuda_include()} -D__CUDA_API_VERSION_INTERNAL"
    core = ("csrc/core/*.cpp",)
    # The daemon's half (threads, heap): never part of the preloaded library.
    core_daemon = ("csrc/core/dag/**/*.cpp", "csrc/core/daemon/*.cpp")
    return {
        "native": Target(
            output="_native" + sysconfig.get_config_var("EXT_SUFFIX"),
            sources=("csrc/bindings/*.cpp",),
            flags=f"{CORE_FLAGS} -Ibuild/generated {_python_flags()}",
            others=tuple((part, CORE_FLAGS) for part in (*core, *core_daemon)),
            link=OURS_ALONE,
            inputs=(EXPORTS,),
        ),
        "shim": Target(
            output="libtandem.so",
            sources=(*core, "shim/**/*.cpp"),
            flags=f"{_shim_flags()} {PRELOADED}",
            # exports.map gives these names their versions; a program linked without it has none.
            # Tests do not ask for glibc's versions either: a sanitizer's replacements have none.
            others=tuple(
                (source, f"{_shim_flags()} {PRELOADED} -DTANDEM_FIRST_VERSIONS")
                for source in ("shim/dlsym.cpp", "shim/old_glibc.cpp")
            ),
            # -Bsymbolic: the table of our own functions needs no symbol look-ups when the library
            # is loaded, a cost in every process of a job; noseparate-code: fewer mappings.
            link="-static-libstdc++ -static-libgcc -Wl,-z,defs -Wl,--exclude-libs,ALL "
            "-Wl,-Bsymbolic -Wl,-z,noseparate-code -Wl,--version-script=shim/exports.map -ldl",
            compiler="$gxx",
            inputs=("shim/exports.map",),
        ),
        "softgpu-cuda": Target(
            output="libcuda.so.1",
            sources=("csrc/softgpu/driver/**/*.cpp", "csrc/softgpu/ptx/*.cpp"),
            flags=_driver_flags(),
            others=((OF_A_VERSION, _driver_flags()),),
            link=f"$runtime {OURS_ALONE} -Wl,-Bsymbolic -Wl,-z,defs -Wl,-soname,libcuda.so.1 -ldl",
            inputs=(EXPORTS,),
        ),
        "softgpu-nvml": Target(
            output="libnvidia-ml.so.1",
            sources=("csrc/softgpu/nvml/*.cpp",),
            flags=f"-Icsrc/softgpu -Ibuild/generated {cuda}",
            others=((OF_A_VERSION, _driver_flags()),),
            link=f"$runtime {OURS_ALONE} -Wl,-Bsymbolic -Wl,-z,defs "
            "-Wl,-soname,libnvidia-ml.so.1 -ldl",
            inputs=(EXPORTS,),
        ),
        "softgpu-device": Target(
            output="tandem-softgpu",
            sources=("csrc/softgpu/device/*.cpp",),
            flags=DEVICE_FLAGS,
            link="$runtime",
            shared=False,
        ),
        "softgpu-mps": Target(
            output="nvidia-cuda-mps-control",
            sources=("csrc/softgpu/mps/*.cpp",),
            flags="-Icsrc/softgpu",
            link="$runtime -ldl",
            shared=False,
        ),
    }


def faulty_targets() -> dict[str, Target]:
    """The shim with planted faults (shim/faults.def): for tests, never shipped."""
    shim = targets()["shim"]
    faulty = [path for path in sorted(ROOT.glob("shim/**/*.cpp")) if _may_have_faults(path)]
    plants = ((str(p.relative_to(ROOT)), f"{shim.flags} -DTANDEM_FAULTS") for p in faulty)
    return {
        "shim-faults": replace(shim, output="faults/libtandem.so", others=(*shim.others, *plants))
    }


def old_targets() -> dict[str, Target]:
    """The software driver and its NVML as of older CUDA versions: for tests only."""
    return {
        f"{name}-{version}": _of_version(targets()[name], version, exports)
        for version in OLD_DRIVERS
        for name, exports in (
            ("softgpu-cuda", f"build/generated/softgpu_{version}.map"),
            ("softgpu-nvml", EXPORTS),
        )
    }


def _of_version(target: Target, version: str, exports: str) -> Target:
    major, minor = map(int, version.split("."))
    flags = f"{_driver_flags()} -DSOFTGPU_CUDA_VERSION={1000 * major + 10 * minor}"
    return replace(
        target,
        output=f"cuda-{version}/{target.output}",
        others=(*target.others, (OF_A_VERSION, flags)),
        link=target.link.replace(EXPORTS, exports),
        inputs=(exports,),
    )


def _may_have_faults(source: Path) -> bool:
    """Whether it includes faults.h, directly or not; the other sources are as in the shim."""
    headers = {path.name: path for path in ROOT.glob("shim/**/*.h")}
    seen: set[str] = set()
    new = [source]
    while new:
        included = re.findall(r'#include "(?:\w+/)*(\w+\.h)"', new.pop().read_text())
        found = {name for name in included if name in headers} - seen
        seen |= found
        new += [headers[name] for name in found]
    return "faults.h" in seen


def test_targets() -> dict[str, Target]:
    """One program for each tests/cpp/<area>/test_*.cpp, linked with that area's sources.

    Files named main.cpp hold a program's `main` and stay out of the tests, as do the exported names
    of the shim, which tests/cpp/shim/entries.cpp replaces.
    """
    driver = _driver_flags()
    # The libraries' own flags, so that the tests link the very objects compiled for the libraries.
    areas: dict[str, dict[str, str]] = {
        "core": {
            "csrc/core/*.cpp": CORE_FLAGS,
            "csrc/core/dag/**/*.cpp": CORE_FLAGS,
            "csrc/core/daemon/*.cpp": CORE_FLAGS,
        },
        # Of the driver only the part that parses bytes, without a device process.
        "softgpu": {
            "csrc/softgpu/device/*.cpp": DEVICE_FLAGS,
            "csrc/softgpu/driver/image/*.cpp": driver,
            "tests/cpp/softgpu/simulation.cpp": f"{DEVICE_FLAGS} -Icsrc/softgpu/device",
        },
        "driver": {
            OF_A_VERSION: driver,
            "csrc/softgpu/driver/**/*.cpp": driver,
            "csrc/softgpu/ptx/*.cpp": driver,
        },
        "ptx": {"csrc/softgpu/ptx/*.cpp": driver},
        "shim": {
            "csrc/core/*.cpp": CORE_FLAGS,
            "shim/**/*.cpp": f"{_shim_flags()} {PRELOADED}",
            "tests/cpp/shim/entries.cpp": f"{_shim_flags()} {PRELOADED}",
        },
    }
    found = {}
    for area, parts in areas.items():
        # Vector code and the preloaded library's restrictions apply to tested code, not to tests.
        own = " ".join(dict.fromkeys(parts.values())).replace("$lanes", "").replace(PRELOADED, "")
        for test in sorted((ROOT / "tests/cpp" / area).glob("test_*.cpp")):
            found[f"{area}-{test.stem}"] = Target(
                output=f"tests/{area}-{test.stem}",
                sources=(str(test.relative_to(ROOT)),),
                flags=f"{own} -Itests/cpp",
                others=tuple(parts.items()),
                link="-ldl",
                shared=False,
                runs=("softgpu-device",) if area == "driver" else (),
            )
    return found


def _expand(target: Target, *, is_test: bool) -> list[tuple[Path, str]]:
    """The target's sources, each with its flags."""
    globs = [*((g, target.flags) for g in target.sources), *target.others]
    found = {path: flags for g, flags in globs for path in sorted(ROOT.glob(g))}
    left_out = {"main.cpp", ENTRIES.name} if is_test else set()
    return [(path, f) for path, f in found.items() if path.name not in left_out]


def _batches(sources: list[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """The sources to compile: the last one of each batch, which includes the others first."""
    found: list[tuple[Path, str]] = []

    def kind(source: tuple[Path, str]) -> tuple[Path, str, bool]:
        path, flags = source
        return path.parent, flags, path.match(UNBATCHED)

    for (folder, flags, is_unbatched), same in groupby(sources, key=kind):
        paths = [path.relative_to(ROOT) for path, _ in same]
        size = 1 if is_unbatched else BATCHES.get(str(folder.relative_to(ROOT)), 1)
        starts = [path for path in paths if path.name == "main.cpp"]  # tests leave these out
        found += [(ROOT / path, flags) for path in starts]
        paths = [path for path in paths if path not in starts]
        for start in range(0, len(paths), size):
            *others, last = paths[start : start + size]
            found.append((ROOT / last, flags + "".join(f" -include {path}" for path in others)))
    return found


def _place(places: dict[str, str], flags: str, name: str) -> str:
    """The folder for objects compiled with these flags, shared by targets with the same flags."""
    taken = [place for place in places.values() if place.partition("+")[0] == name]
    return places.setdefault(flags, f"{name}+{len(taken)}" if taken else name)


def _generating(variant: str) -> list[str]:
    """Rules for build/generated, which precedes every compilation."""
    include = cuda_include()
    read = [*ROOT.glob("csrc/api/*.txt"), *ROOT.glob("shim/*.def"), *ROOT.glob("shim/*.py")]
    inputs = [str(path.relative_to(ROOT)) for path in sorted(read)]
    inputs += [str(include / "cuda.h"), str(include / "cudaTypedefs.h")]
    command = f"{sys.executable} $in --cuda-include {include} --out build/generated"
    lines = ["rule generate", f"  command = {command}", "  description = GENERATE $out"]
    lines.append("  restat = 1")  # generators leave a file alone if its text is unchanged
    every = []
    for script, names in GENERATED.items():
        outputs = " ".join(f"build/generated/{name}" for name in names)
        lines.append(f"build {outputs}: generate {script} | {' '.join(inputs)}")
        every.append(outputs)
    return [*lines, f"build {variant}-generated: phony {' '.join(every)}"]


def _compilers(variant: str) -> list[str]:
    """Ninja variables for the compilers, their warnings and the static runtime libraries."""
    lines = [f"gxx = {os.environ.get('CXX', 'g++')}"]
    if variant != "portable":
        static = "-static-libstdc++ -static-libgcc"
        warnings = f"{WARNINGS} -Werror" if os.environ.get(STRICT) else WARNINGS
        return [*lines, "cxx = $gxx", f"warnings = {warnings}", f"runtime = {static}"]
    # This compiler has static libraries only. g++ decides whether sources are free of warnings.
    return [*lines, f"cxx = {os.environ[PORTABLE_CXX]}", "warnings = -w", "runtime ="]


def _output_folder(variant: str) -> Path:
    return Path("build/native") / variant


def write_ninja(variant: str) -> Path:
    """Write build/native/<variant>/build.ninja and return its path. Deterministic."""
    opt, opt_link = VARIANTS[variant]
    out = _output_folder(variant)
    lines = [
        "ninja_required_version = 1.8",
        f"builddir = {out}",  # ninja's own logs
        *_compilers(variant),
        f"lanes = {'-O3' if variant in ('release', 'portable') else ''}",
        "rule cc",
        f"  command = $compiler {COMMON} $warnings {opt} $flags -MMD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = CXX $out",
        "rule link",
        f"  command = $compiler $mode -pthread {opt_link} $in -o $out $link",
        "  description = LINK $out",
        *_generating(variant),
    ]
    tests = test_targets()
    places: dict[str, str] = {}  # flags -> folder
    rules: dict[str, str] = {}
    for name, target in {**targets(), **faulty_targets(), **old_targets(), **tests}.items():
        is_test = name in tests
        objects = []
        for source, flags in _batches(_expand(target, is_test=is_test)):
            relative = source.relative_to(ROOT)
            place = _place(places, flags, f"{name.split('-')[0]}-test" if is_test else name)
            is_unwatched = variant == "tsan" and relative.is_relative_to(UNWATCHED)
            made_by = _output_folder("release") if is_unwatched else out
            obj = str(made_by / "obj" / place / f"{relative}.o")
            objects.append(obj)
            if is_unwatched:
                continue
            is_plain = relative == ENTRIES and "-DTANDEM_FAULTS" in flags
            # Optimising a test takes longer than it saves at run time.
            if is_plain or (variant == "tsan" and relative.is_relative_to("tests")):
                flags += " -O0"
            # What tests share with a library is compiled by the library's rule, which comes first.
            rules.setdefault(
                obj,
                f"build {obj}: cc {relative} || {variant}-generated\n"
                f"  flags = {flags}\n  compiler = {target.compiler}",
            )
        inputs = " ".join([*target.inputs, *(str(out / targets()[n].output) for n in target.runs)])
        lines += [
            f"build {out / target.output}: link {' '.join(objects)}"
            + (f" | {inputs}" if inputs else ""),
            f"  mode = {'-shared' if target.shared else ''}",
            f"  link = {target.link}",
            f"  compiler = {target.compiler}",
            f"build {variant}-{name}: phony {out / target.output}",
        ]
    lines += rules.values()
    lines.append(f"build {variant}-tests: phony {' '.join(f'{variant}-{n}' for n in tests)}")
    path = ROOT / out / "build.ninja"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
    return path


def build(names: list[str], variant: str = "release") -> dict[str, Path]:
    """Build the named targets; return name -> output path.

    Raises:
        subprocess.CalledProcessError: the compiler or linker failed; its output is on stderr.
    """
    import ninja  # a build requirement of the wheel, so imported late

    if variant == "tsan":
        build(["softgpu-cuda"])  # with the objects of UNWATCHED
    out = ROOT / _output_folder(variant)
    out.mkdir(parents=True, exist_ok=True)
    tool = Path(ninja.BIN_DIR) / "ninja"
    goals = [f"{variant}-{n}" for n in names]
    with (out / "lock").open("w") as lock:  # two builds at once would tear ninja's logs
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = write_ninja(variant)
        command = [str(tool), "-f", str(path), *goals]
        # A terminal shows the progress on one line; a log gets only the compiler's output.
        if not (sys.stdout.isatty() and _has_work(command)):
            command.append("--quiet")
        subprocess.run(command, check=True, cwd=ROOT)
    known = {**targets(), **faulty_targets(), **old_targets(), **test_targets()}
    return {n: out / known[n].output for n in names if n in known}


def _has_work(command: list[str]) -> bool:
    dry = subprocess.run([*command, "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    return "no work to do" not in dry.stdout


def main() -> None:
    """Build the targets named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=VARIANTS, default="release")
    parser.add_argument("names", nargs="*", metavar="TARGET")
    arguments = parser.parse_args()
    if arguments.variant == "portable" and PORTABLE_CXX not in os.environ:
        parser.error(f"the portable variant takes its compiler of {PORTABLE_CXX}; see make wheel")
    names = arguments.names or list(targets())
    try:
        for name, output in build(names, arguments.variant).items():
            print(f"{name}: {output.relative_to(ROOT)}")
    except subprocess.CalledProcessError as failure:
        sys.exit(failure.returncode)


if __name__ == "__main__":
    main()
