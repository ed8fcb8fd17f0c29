"""What a user gets from `pip install .`: the wheel, in an environment of its own."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
from offline_pip import OFFLINE, PIP, copy_click

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and click; returns its bin folder."""
    work = tmp_path_factory.mktemp("install")
    venv.create(work / "env", with_pip=False)
    site = next((work / "env/lib").glob("python*")) / "site-packages"
    subprocess.run(
        [*PIP, "install", *OFFLINE, "--target", str(site), str(wheel)], check=True, timeout=300
    )
    copy_click(site)
    return work / "env/bin"


def _run(*command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **extra}
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def test_the_wheel_runs_a_command_under_the_shim_with_click_alone(installed: Path, tmp_path: Path):
    python = str(installed / "python")

    done = _run(
        python, "-m", "tandem.cli", "run", "--", "/bin/sh", "-c", "echo $LD_PRELOAD; exit 7",
        TANDEM_RUNTIME_DIR=str(tmp_path),
    )  # fmt: skip

    assert done.returncode == 7
    assert done.stdout.strip().endswith("tandem/libtandem.so")
    assert Path(done.stdout.strip()).is_file()


def test_the_wheel_carries_what_containers_mount(installed: Path, tmp_path: Path):
    python = str(installed / "python")

    done = _run(python, "-m", "tandem.cli", "cdi", "generate", TANDEM_RUNTIME_DIR=str(tmp_path))

    mounts = json.loads(done.stdout)["containerEdits"]["mounts"]
    assert all(Path(mount["hostPath"]).exists() for mount in mounts)
    assert len(mounts) == 3


def test_the_wheel_carries_the_software_gpu_and_its_kernel_header(installed: Path):
    package = next((installed.parent / "lib").glob("python*")) / "site-packages/tandem/softgpu"

    names = {str(p.relative_to(package)) for p in package.rglob("*") if p.is_file()}

    assert {"lib/libcuda.so.1", "lib/libnvidia-ml.so.1", "bin/tandem-softgpu"} <= names
    assert any(name.endswith("tandem_kernel.h") for name in names)


def test_a_missing_prerequisite_gets_one_clear_line():
    script = ROOT / "packaging/check_prerequisites.sh"

    done = _run("sh", str(script), "/nonexistent/python3")

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "python3-venv" in done.stderr


@pytest.mark.parametrize("program", ["main", "main_of_helper"])
def test_the_daemon_and_its_helper_say_which_extra_they_need(installed: Path, program: str):
    python = str(installed / "python")

    done = _run(python, "-c", f"import tandemd; tandemd.{program}()")

    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "[daemon]" in done.stderr


def test_the_source_archive_holds_the_whole_checkout(tmp_path: Path):
    """Otherwise `pip install` of it would find nothing to compile."""
    known = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if known.returncode != 0:
        pytest.skip("not a checkout of git")
    source = tmp_path / "source"
    for name in known.stdout.splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)

    making = [sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)]
    subprocess.run(making, cwd=source, check=True, timeout=120)

    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert {name for name in known.stdout.splitlines() if name[0] != "."} <= held
    assert not [name for name in held if name.endswith((".so", ".so.1", ".pyc"))]
