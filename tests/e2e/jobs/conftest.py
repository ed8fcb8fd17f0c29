"""Jobs through the whole path: `tandem run`, the shim, the software GPU and the daemon."""

import shutil
import tempfile
from pathlib import Path

import pytest
from running_job import Place

from tandem import softgpu


@pytest.fixture(scope="session")
def sharers(tmp_path_factory):
    """Kernels with names that say how they use their pointers."""
    path = tmp_path_factory.mktemp("sharers") / "sharers.so"
    softgpu.compile_kernels(Path(__file__).parent / "shared_buffer.cu", path)
    return path


@pytest.fixture(scope="session")
def pairing(made_once):
    """Kernels that are bound by computing or by memory bandwidth."""
    source = Path(__file__).parent / "pairing.cu"
    return made_once("pairing.so", lambda path: softgpu.compile_kernels(source, path))


@pytest.fixture
def place(fresh_place):
    """A place with a running daemon, on the virtual clock unless the test says otherwise."""
    fresh_place.start_daemon()
    return fresh_place


@pytest.fixture
def fresh_place(image, request):
    """A place whose daemon the test will start."""
    # The names of pytest's own folders are too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))
    clocks = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    place = Place(folder, image, clock=clocks.get("place", "virtual"))
    try:
        yield place
    finally:
        place.close()
        shutil.rmtree(folder, ignore_errors=True)  # the device process ends a moment later
