"""Jobs through the whole path: `tandem run`, shim, software GPU, daemon."""

import shutil
import tempfile
from pathlib import Path

import pytest
from running_job import CONFORMANCE, Place

from tandem import softgpu


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    softgpu.compile_kernels(CONFORMANCE / "kernels.cu", path)
    return path


@pytest.fixture
def place(image, request):
    """On the virtual clock unless a test says otherwise."""
    # pytest's own folders have names too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="tandem-"))
    place = Place(folder, image, clock=getattr(request, "param", "virtual"))
    try:
        place.start_daemon()
        yield place
    finally:
        place.close()
        shutil.rmtree(folder, ignore_errors=True)  # the device process ends a moment later
