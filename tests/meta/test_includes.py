"""Which headers each part of the C++ code may include."""

import re
from pathlib import Path

import pytest

QUOTED = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
SOURCES = ("*.h", "*.cpp", "*.cu", "*.def")

# folder -> headers it must not reach; the reason is in the name of the rule
FORBIDDEN = {
    "csrc/core": re.compile(r"(^|/)(cuda\w*|Python|nvml|softgpu_hooks)\.h$|^pybind11/|(^|/)shim/"),
    "csrc/softgpu": re.compile(r"(^|/)(Python|shm_layout|wire)\.h$|^pybind11/|(^|/)(core|shim)/"),
    "csrc/bindings": re.compile(r"(^|/)cuda\w*\.h$|(^|/)(shim|softgpu)/"),
    "shim": re.compile(r"(^|/)Python\.h$|^pybind11/|softgpu/"),
}


def files(folder):
    return [f for pattern in SOURCES for f in sorted(folder.rglob(pattern))]


def included(file):
    return INCLUDE.findall(file.read_text())


@pytest.mark.parametrize("part", FORBIDDEN)
def test_a_part_includes_nothing_of_other_layers(root, part):
    found = files(root / part)
    wrong = [f"{f.relative_to(root)}: {h}" for f in found for h in included(f)]

    assert found
    assert [line for line in wrong if FORBIDDEN[part].search(line.partition(": ")[2])] == []


@pytest.mark.parametrize(
    ("part", "other"), [("csrc/softgpu", "csrc/core"), ("csrc/softgpu", "shim")]
)
def test_the_software_gpu_shares_no_header_with_what_it_tests(root, part, other):
    theirs = {f.name for f in (root / other).rglob("*.h")}
    own = {f.name for f in (root / part).rglob("*.h")}

    quoted = {Path(h).name for f in files(root / part) for h in QUOTED.findall(f.read_text())}
    assert quoted & theirs - own == set()


def test_a_forbidden_include_is_noticed():
    text = '#include <vector>\n  #  include "cuda.h"\n// #include <Python.h>\n'

    assert INCLUDE.findall(text) == ["vector", "cuda.h"]
    assert FORBIDDEN["csrc/core"].search("cuda.h")
    assert FORBIDDEN["csrc/softgpu"].search("../core/gate.h")
    assert not FORBIDDEN["csrc/core"].search("gate.h")
