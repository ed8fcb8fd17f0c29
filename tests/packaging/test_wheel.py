"""How `make wheel` checks what it has made; making a wheel takes a network and minutes."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))  # for native_needs
SHIM = "tandem/libtandem.so"
SAYS = """
x.whl is consistent
with the following platform tag: "{tag}".
"""


@pytest.fixture(scope="module")
def wheels():
    """packaging/wheel.py, as a module."""
    spec = importlib.util.spec_from_file_location("wheel_build", ROOT / "packaging/wheel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def packed(folder, *places):
    made = folder / "x.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("tandem/__init__.py", "")
        for place in places:
            archive.write(ROOT / "client" / SHIM, place)
    return made


def auditwheel(folder, tag):
    """Make a Python whose auditwheel reports that tag."""
    (folder / "said").write_text(SAYS.format(tag=tag))
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ncat '{folder / 'said'}'\n")
    program.chmod(0o755)
    return program


def test_the_shim_of_a_normal_build_may_go_into_a_wheel(wheels, tmp_path):
    assert wheels.complaints(packed(tmp_path, SHIM)) == []


def test_each_compiled_file_is_looked_at_and_named(wheels, tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "GLIBC", (2, 5))

    (found,) = wheels.complaints(packed(tmp_path, SHIM, "tandem/softgpu/lib/libcuda.so.1"))

    assert found.startswith("tandem/softgpu/lib/libcuda.so.1 needs glibc 2.")
    assert found.endswith("and 2.5 was to do")


def test_the_shim_has_to_do_with_an_older_glibc_than_the_rest(wheels, tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "SHIM_GLIBC", (2, 5))

    (found,) = wheels.complaints(packed(tmp_path, SHIM, "tandem/softgpu/lib/libcuda.so.1"))

    assert found.startswith(f"{SHIM} needs glibc 2.17")


@pytest.mark.parametrize("tag", ["manylinux_2_17_x86_64", "manylinux_2_28_x86_64"])
def test_a_wheel_for_older_systems_is_one_for_newer_ones(wheels, tmp_path, tag):
    tools = auditwheel(tmp_path, tag)

    assert wheels.auditwheels_complaints(tools, tmp_path / "x.whl") == []


@pytest.mark.parametrize("tag", ["manylinux_2_31_x86_64", "linux_x86_64"])
def test_a_wheel_that_auditwheel_takes_for_another_is_refused(wheels, tmp_path, tag):
    tools = auditwheel(tmp_path, tag)
    made = packed(tmp_path, SHIM)

    with pytest.raises(SystemExit, match=f"error: x.whl: auditwheel .* manylinux_2_28(?s:.*){tag}"):
        wheels.checked(tools, made)


def test_a_python_that_is_not_there_is_told_before_anything_is_fetched(tmp_path):
    command = [sys.executable, ROOT / "packaging/wheel.py", "--output", tmp_path / "made"]

    done = subprocess.run(
        [*command, sys.executable, "/nonexistent/python3"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "/nonexistent/python3 not found" in done.stderr


def test_the_compiler_is_for_that_glibc(wheels):
    command = wheels.compiler(Path("/tools/bin/python"))

    assert command.startswith("/tools/bin/python -m ziglang c++ -target ")
    assert command.endswith("-linux-gnu.2.28")
