"""Programs on the software GPU get the same answers bare and held, down to the last status."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from keeper import Keeper
from shim_support import GENERATED, HERE, ROOT

from tandem import softgpu

CONFORMANCE = ROOT / "tests/conformance"


@pytest.fixture(scope="module")
def keeper() -> Iterator[Keeper]:
    # The names of pytest's own folders are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder, Keeper(Path(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def bare(image: Path, keeper: Keeper) -> dict[str, str]:
    """The environment of a program without the shim."""
    kept = ("PATH", "HOME", "LANG")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "TEST_IMAGE": str(image),
        "PYTHONPATH": str(CONFORMANCE),
        "TANDEM_RUNTIME_DIR": str(keeper.path.parent),
        "LD_LIBRARY_PATH": str(softgpu.LIBRARIES),
    }


@pytest.fixture(scope="module")
def held(bare: dict[str, str], shim_library: Path) -> dict[str, str]:
    """The same environment with the shim, attached to the keeper."""
    return bare | {"LD_PRELOAD": str(ROOT / shim_library)}


def on_a_device(folder: Path, **options: str | int) -> dict[str, str]:
    """Return the variables of a software GPU of its own."""
    folder.mkdir()
    device = {"clock": "virtual", "profile": "tiny"} | options
    return softgpu.environment({}, folder=folder, **device)


def run(program: str, *words: str, env: dict[str, str], asked: str = "") -> str:
    done = subprocess.run(
        [sys.executable, str(HERE / program), *words],
        env=env,
        input=asked,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRAMS = {
    "launch failure": (("faults",), {"faults": "launch:affine@2"}),
    "device lost": (("faults",), {"faults": "lost:affine@2"}),
    "uncorrectable": (("faults",), {"faults": "ecc-uncorrectable:affine@2"}),
    "out of memory": (("faults",), {"faults": "oom@3"}),
    "no fault": (("faults",), {}),
    "without a context": (("without_a_context",), {}),
    "before cuInit": (("before_init",), {}),
    "several contexts": (("several_contexts",), {}),
    "context in flight": (("context_in_flight",), {}),
    "after its end": (("after_its_end",), {}),
    "after its context": (("after_its_context",), {}),
    "broken images": (("broken_images",), {}),
    "lazy loading": (("loading",), {"CUDA_MODULE_LOADING": "LAZY"}),
    "eager loading": (("loading",), {"CUDA_MODULE_LOADING": "EAGER"}),
    "green contexts": (("green",), {}),
    "look-ups": (("look_ups",), {}),
    "threads": (("threads",), {}),
    "two devices": (("two_devices",), {"devices": 2}),
    "second device": (("visible",), {"devices": 3, "CUDA_VISIBLE_DEVICES": "1,0"}),
    "instance": (("visible",), {"mig": "1g.18gb,2g.35gb", "profile": "h200"}),
    "device by uuid": (("visible_by_uuid", "GPU", "1"), {"devices": 2}),
    "instance by uuid": (
        ("visible_by_uuid", "MIG", "0"),
        {"mig": "1g.18gb,2g.35gb", "profile": "h200"},
    ),
    "no device": (("visible",), {"devices": 2, "CUDA_VISIBLE_DEVICES": "-1"}),
} | {
    f"{what} in flight": (("end_in_flight", what), {})
    for what in ("stream", "module", "library", "graph", "memory", "primary", "release")
}


def answers(folder: Path, env: dict[str, str]) -> dict[str, str]:
    """Return what each program printed and how it ended."""
    folder.mkdir()
    requests = {}
    for number, (name, (words, device)) in enumerate(PROGRAMS.items()):
        options = {key: value for key, value in device.items() if key.islower()}
        variables = {key: str(value) for key, value in device.items() if key.isupper()}
        own = on_a_device(folder / str(number), **options)
        requests[name] = {"words": words, "env": own | variables}
    return json.loads(run("same_answers.py", env=env, asked=json.dumps(requests)))


@pytest.fixture(scope="module")
def both(
    bare: dict[str, str], held: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], dict[str, str]]:
    folder = tmp_path_factory.mktemp("same")
    return answers(folder / "bare", bare), answers(folder / "held", held)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_answers_the_same_bare_and_held(
    name: str, both: tuple[dict[str, str], dict[str, str]]
) -> None:
    expected, answer = both[0][name], both[1][name]

    assert answer.splitlines() == expected.splitlines()
    assert expected.endswith("\nended with 0")


@pytest.mark.parametrize(
    "name", ["second device", "device by uuid", "instance", "instance by uuid"]
)
def test_the_daemon_hears_of_the_device_that_the_program_sees(
    name: str, both: tuple[dict[str, str], dict[str, str]], keeper: Keeper
) -> None:
    (line,) = [line for line in both[1][name].splitlines() if line.startswith("devices")]

    assert bytes.fromhex(line.split()[1]) in keeper.first_devices


@pytest.mark.slow  # a process for each call in the table, twice
def test_calls_with_odd_arguments_answer_the_same_bare_and_held(
    bare: dict[str, str], held: dict[str, str], keeper: Keeper, tmp_path: Path
) -> None:
    table = GENERATED / "shim_signatures.json"
    attached = keeper.attached

    expected, answer = (
        run("odd_calls.py", str(table), env=env | on_a_device(tmp_path / name))
        for name, env in (("bare", bare), ("held", held))
    )

    names = json.loads(table.read_text())
    assert answer.splitlines() == expected.splitlines()
    assert expected.count("\n") == len(names)
    assert keeper.attached - attached >= len(names)
