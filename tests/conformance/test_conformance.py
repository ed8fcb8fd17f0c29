"""Each body of bodies/ on the software GPU, or on a real one with -m gpu: bare, held, managed."""

from __future__ import annotations

import ast
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from keeper import Keeper

import tandem
from tandem import softgpu
from tandem.demo.place import probe

pytest.importorskip("cuda.bindings")

HERE = Path(__file__).parent
BODIES = [
    f"{path.stem}-{node.name}"
    for path in sorted((HERE / "bodies").glob("[!_]*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
]


DEVICES = {"peer": 2}  # topics that need several; elsewhere their bodies skip themselves
TANDEM_RUN = (sys.executable, "-m", "tandem.cli", "run", "--require", "--")
SKIPPED = 77
PATIENCE_S = 60
SHIM = Path(tandem.__file__).with_name("libtandem.so")


def devices_for(name: str) -> int:
    return DEVICES.get(name.partition("-")[0], 1)


def judge(status: int, said: str) -> None:
    if status == SKIPPED:
        pytest.skip(said.strip())
    assert status == 0, said


def run_body(name: str, env: dict[str, str], prefix: Sequence[str] = ()) -> None:
    command = [*prefix, sys.executable, str(HERE / "bodies"), *name.split("-")]
    child = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    judge(child.returncode, child.stderr)


class Forks:
    """A process that forks for each body, so that Python starts once."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env  # only its library path matters, as each body brings its own environment
        self.server: subprocess.Popen[str] | None = None

    def run(self, name: str, env: dict[str, str]) -> None:
        if self.server is None:
            command = [sys.executable, str(HERE / "bodies"), "--serve"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.server = subprocess.Popen(
                command, env=self.env, text=True, start_new_session=True, **pipes
            )
        topic, body = name.split("-")
        print(json.dumps({"topic": topic, "name": body, "env": env}), file=self.server.stdin)
        self.server.stdin.flush()
        if not select.select([self.server.stdout], [], [], PATIENCE_S)[0]:
            self.close()
            pytest.fail(f"{name} did not end within {PATIENCE_S} s")
        answer = json.loads(self.server.stdout.readline())
        judge(answer["status"], answer["said"])

    def close(self) -> None:
        """End the process, and whatever the bodies have left running."""
        if self.server is not None:
            os.killpg(self.server.pid, signal.SIGKILL)
            self.server.communicate()
            self.server = None


@pytest.fixture(scope="session")
def forks(tmp_path_factory) -> Iterator[Forks]:
    found = Forks(softgpu.environment(folder=tmp_path_factory.mktemp("forks")))
    yield found
    found.close()


@pytest.mark.parametrize("clock", ["virtual", pytest.param("real", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", BODIES)
def test_on_the_software_gpu(name, clock, image, tmp_path, forks):
    base = {**os.environ, "TEST_IMAGE": str(image)}
    options = {"clock": clock, "profile": "tiny", "devices": devices_for(name)}
    forks.run(name, softgpu.environment(base, folder=tmp_path, **options))


@pytest.fixture(scope="session")
def preloaded_forks(tmp_path_factory) -> Iterator[Forks]:
    env = softgpu.environment(folder=tmp_path_factory.mktemp("forks"))
    found = Forks(env | {"LD_PRELOAD": str(SHIM)})
    yield found
    found.close()


@pytest.fixture(scope="session")
def keeper() -> Iterator[Keeper]:
    # The names of pytest's own folders are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder, Keeper(Path(folder)) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_on_the_software_gpu_while_held(name, keeper, image, tmp_path, preloaded_forks):
    base = {**os.environ, "TEST_IMAGE": str(image), "TANDEM_RUNTIME_DIR": str(keeper.path.parent)}
    options = {"clock": "virtual", "profile": "tiny", "devices": devices_for(name)}
    held_before = keeper.held
    preloaded_forks.run(name, softgpu.environment(base, folder=tmp_path, **options))
    if name.startswith("kernels-"):
        assert keeper.held > held_before, "each of these launches something"


@pytest.fixture(scope="session")
def served(image, serve, clean_env, tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("gpu")
    base = {**clean_env, "TEST_IMAGE": str(image)}
    return serve(softgpu.environment(base, folder=folder, clock="real", profile="tiny"))


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_on_the_software_gpu_under_tandem(name, served, preloaded_forks):
    preloaded_forks.run(name, served)


@pytest.fixture(scope="session")
def gpu_image(tmp_path_factory) -> Path:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).is_file():
        pytest.skip("compiling for a GPU needs nvcc")
    path = tmp_path_factory.mktemp("kernels") / "kernels.cubin"
    # Not -arch=native: if nvcc finds no GPU, it warns and compiles for another one.
    architecture = f"-arch=sm_{probe(os.environ)['capability']}"
    command = [nvcc, "-cubin", architecture, "-o", str(path), str(HERE / "kernels.cu")]
    subprocess.run(command, check=True)
    return path


@pytest.mark.gpu
@pytest.mark.parametrize("name", BODIES)
def test_on_a_gpu(name, gpu_image):
    run_body(name, {**os.environ, "TEST_IMAGE": str(gpu_image)})


@pytest.fixture(scope="session")
def gpu_served(gpu_image, serve, clean_env) -> dict[str, str]:
    return serve({**clean_env, "TEST_IMAGE": str(gpu_image)})


@pytest.mark.gpu
@pytest.mark.parametrize("name", BODIES)
def test_on_a_gpu_under_tandem(name, gpu_served):
    run_body(name, gpu_served, TANDEM_RUN)
