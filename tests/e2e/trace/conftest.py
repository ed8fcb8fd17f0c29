"""Programs on the software GPU under `tandem trace`."""

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from traced_program import CONFORMANCE, VADD, Tandem

from tandem import softgpu
from tandem.demo.image import software_image


@pytest.fixture(scope="session")
def demo_image(tmp_path_factory):
    return software_image(tmp_path_factory.mktemp("demo"))


@contextmanager
def command_line(image, demo_image=""):
    """Yield a command line on the virtual clock, with a timeline."""
    with tempfile.TemporaryDirectory(prefix="tandem-", ignore_cleanup_errors=True) as folder:
        timeline = Path(folder) / "timeline.jsonl"
        options = {"clock": "virtual", "profile": "tiny", "timeline": timeline}
        env = softgpu.environment(None, folder=folder, **options)
        env |= {"TANDEM_RUNTIME_DIR": folder, "TANDEM_SOFTGPU_LINGER_MS": "50"}
        env |= {"TEST_IMAGE": str(image), "DEMO_IMAGE": str(demo_image)}
        env["PYTHONPATH"] = os.pathsep.join([str(CONFORMANCE), os.environ.get("PYTHONPATH", "")])
        env.pop("LD_PRELOAD", None)
        yield Tandem(env=env, timeline=timeline)


@pytest.fixture
def tandem(image, demo_image):
    """A command line with its own device: one that others have used would switch contexts first."""
    with command_line(image, demo_image) as made:
        yield made


@pytest.fixture(scope="session")
def recording(image, tmp_path_factory):
    """A recording of a vector addition, with the times of its kernels."""
    path = tmp_path_factory.mktemp("recording") / "vadd.trace"
    words = ("trace", "calls", "--device-times", "-o", path, "--", sys.executable, "-c", VADD)
    with command_line(image) as made:
        made(*words)
    return path
