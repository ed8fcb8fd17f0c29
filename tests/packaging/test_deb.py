"""The contents of the Debian package, made with the tests' Python and without a network."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from offline_pip import OFFLINE, copy_click

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ("postinst", "prerm", "postrm")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed"),
]


@pytest.fixture(scope="module")
def deb():
    """packaging/deb/build.py, as a module."""
    spec = importlib.util.spec_from_file_location("deb_build", ROOT / "packaging/deb/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def package(deb, wheel, tmp_path_factory):
    """The package, made as `make deb` does, but of the wheel and click alone."""
    work = tmp_path_factory.mktemp("deb")
    stage = work / "stage"
    deb.make_environment(stage, Path(sys.executable), [str(wheel)], *OFFLINE)
    copy_click(next((stage / deb.HOME / "lib").glob("python*/site-packages")))
    return deb.build(stage, Path(sys.executable), work / "out")


@pytest.fixture(scope="module")
def unpacked(package):
    """What the package installs, below a folder instead of /."""
    root = package.parent / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", package, root], check=True)
    return root


def told(*words, env=None):
    return subprocess.run(words, check=True, capture_output=True, text=True, env=env).stdout


def test_it_says_what_it_is_and_which_python_it_needs(package, deb):
    major, minor = sys.version_info[:2]
    fields = told("dpkg-deb", "--field", package)

    assert "Package: gpu-tandem\n" in fields
    assert f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1})" in fields
    assert package.name == f"gpu-tandem_0.1.0_{told('dpkg', '--print-architecture').strip()}.deb"
    assert [line for line in fields.splitlines() if line.endswith(": ")] == []


def test_all_is_roots_and_nobody_else_may_write_it(package):
    for line in told("dpkg-deb", "--contents", package).splitlines():
        mode, owner, *_ = line.split()
        assert owner == "root/root", line
        assert mode[0] == "l" or (mode[5], mode[8]) == ("-", "-"), line


def test_the_command_runs_from_where_it_was_put(unpacked, deb, tmp_path):
    home = unpacked / deb.HOME
    command = [home / "bin/python3", "-I", home / "bin/tandem"]
    ask = ["run", "--", "/bin/sh", "-c", "echo $LD_PRELOAD"]

    shown = told(
        *command, *ask, env={"TANDEM_RUNTIME_DIR": str(tmp_path), "PATH": os.environ["PATH"]}
    )

    assert Path(shown.strip()) == next(home.glob("lib/*/site-packages/tandem/libtandem.so"))
    assert (unpacked / "usr/bin/tandem").readlink() == Path("../lib/tandem/bin/tandem")
    for name in deb.PROGRAMS:
        first = (home / "bin" / name).read_text().splitlines()[0]
        assert first == "#!/usr/lib/tandem/bin/python3 -I"


def test_nothing_in_it_names_the_place_where_it_was_made(unpacked, package, deb):
    made_at = str(package.parent).encode()
    files = [f for f in unpacked.rglob("*") if f.is_file() and not f.is_symlink()]

    assert [f for f in files if made_at in f.read_bytes()] == []
    compiled = next((unpacked / deb.HOME).rglob("tandem/cli/__pycache__/run.*.pyc"))
    assert b"/usr/lib/tandem/lib/" in compiled.read_bytes()


def test_the_service_its_user_and_the_completions_are_where_they_are_looked_for(unpacked, deb):
    unit = (unpacked / deb.FILES["tandemd.service"]).read_text()
    assert "ExecStart=/usr/bin/tandemd\n" in unit
    assert (unpacked / "usr/bin/tandemd").is_symlink()
    assert "u tandem " in (unpacked / deb.FILES["tandemd.sysusers"]).read_text()
    assert "/run/tandem" in (unpacked / deb.FILES["tandemd.tmpfiles"]).read_text()
    for place in deb.SHELLS.values():
        assert "tandem" in (unpacked / place).read_text()


def test_the_helper_comes_along_and_nobody_but_an_admin_enables_it(unpacked, deb):
    service = (unpacked / deb.FILES["tandemd-helper.service"]).read_text()
    assert "ExecStart=/usr/bin/tandemd-helper --user tandem\n" in service
    assert (unpacked / "usr/bin/tandemd-helper").is_symlink()
    assert (unpacked / deb.FILES["tandemd-helper.socket"]).exists()
    done = {name: (unpacked / "DEBIAN" / name).read_text() for name in SCRIPTS}
    assert "enable --quiet tandemd-helper" not in done["postinst"]
    assert "systemctl disable --quiet --now tandemd-helper.socket\n" in done["prerm"]
    assert "/run/tandem-helper" in done["postrm"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_shell_that_stops_at_an_error_and_do_nothing_unasked(unpacked, name):
    script = unpacked / "DEBIAN" / name
    nothing = {"PATH": "/nonexistent"}

    assert script.stat().st_mode & 0o777 == 0o755
    assert "\nset -e\n" in script.read_text()
    assert told("/bin/sh", "-n", script) == ""
    assert told("/bin/sh", script, "abort-upgrade", "1.0", env=nothing) == ""


def test_a_python_with_another_abi_is_refused(deb, tmp_path):
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho cpython-399-x86_64-linux-gnu 3 99\n")
    other.chmod(0o755)

    with pytest.raises(SystemExit, match=r"has the ABI cpython-399-.*make setup PYTHON="):
        deb.make_environment(tmp_path / "stage", other, [])


def test_a_release_candidate_comes_before_its_release(deb, monkeypatch):
    for version, written in (("1.0rc1", "1.0~rc1"), ("1.0", "1.0"), ("1.0.dev3", "1.0~.dev3")):
        monkeypatch.setattr(deb, "_project", lambda version=version: {"version": version})
        assert deb._version() == written
