"""What a start loads, counted in modules because times depend on the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = str(Path(__file__).parents[3] / "client")
HEAVY = {"google", "grpc", "msgspec", "numpy", "psutil", "pydantic", "pynvml", "structlog"}


def loaded_by(code):
    script = f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.defpath, "PYTHONPATH": CLIENT, "TANDEM_RUNTIME_DIR": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


def cli(*words):
    arguments = ["tandem", *words]
    return f"import sys; sys.argv = {arguments!r}\nfrom tandem.cli.__main__ import main; main()"


@pytest.mark.parametrize(
    "code",
    [
        "import tandem",
        cli("run", "--dry-run", "--", "true"),
        cli("env"),
        cli("--help"),
        cli("version"),
    ],
    ids=["import", "run", "env", "help", "version"],
)
def test_nothing_heavy_is_loaded(code):
    tops = {name.partition(".")[0] for name in loaded_by(code)}

    assert "tandem" in tops
    assert not tops & HEAVY


def test_the_import_brings_only_light_parts_of_the_standard_library():
    new = loaded_by("import tandem") - loaded_by("pass")

    assert not new & {"asyncio", "ctypes", "dataclasses", "inspect", "json", "socket", "subprocess"}
    assert len(new) < 60


def test_modules_are_there_and_loaded_on_first_use():
    at_once = loaded_by("import tandem; dir(tandem)")
    used = loaded_by(
        "import tandem; tandem.torch.attach, tandem.waves.Waves, tandem.softgpu.runtime_folder"
    )

    modules = {"tandem.torch", "tandem.waves", "tandem.softgpu"}
    assert modules & at_once == set()
    assert modules <= used
    assert "torch" not in used  # PyTorch


def test_run_does_not_load_what_only_other_commands_need():
    loaded = loaded_by(cli("run", "--dry-run", "--", "true"))

    assert "tandem.cli.run" in loaded
    assert not loaded & {"tandem._client", "tandem._doctor", "tandem.cli.ps", "tandem._wire"}


def test_without_a_file_of_the_user_nothing_is_loaded_to_read_it():
    assert "tomllib" not in loaded_by(cli("run", "--dry-run", "--", "true"))


def test_help_loads_no_command():
    assert not {
        m for m in loaded_by(cli("--help")) if m.startswith("tandem.cli.") and "__" not in m
    }


def test_a_client_is_loaded_when_it_is_asked_for():
    assert "grpc" in loaded_by("import tandem; tandem.Client")


def test_at_its_end_no_time_goes_into_looking_for_garbage():
    """Callbacks registered first run last."""
    early = "import atexit, gc\natexit.register(lambda: print('alive', len(gc.get_objects())))\n"

    done = subprocess.run(
        [sys.executable, "-c", early + cli("version")],
        env={"PATH": os.defpath, "PYTHONPATH": CLIENT},
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout.split()[-1]) < 100
