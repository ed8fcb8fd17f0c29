"""What is foretold for requests that differ in size; on the virtual clock."""

import re

import pytest
from running_job import HERE

from tandem import softgpu

pytestmark = pytest.mark.slow

SECONDS = 32  # the forecast covers the newest half minute
SERVED = "2_500, rate=40.0, seed=1, seconds={}, spread=0.6"  # 99th is 9 times the tenth
PLANNED = re.compile(r"p99 ([\d.]+) ms \(within (\d+)%\) is predicted and ([\d.]+) ms measured")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "steady.so"
    softgpu.compile_kernels(HERE / "steady.cu", path)
    return path


def test_the_p99_on_a_part_of_its_own_is_that_of_large_requests(fresh_place, image):
    place = fresh_place
    place.env |= {"TANDEM_SOFTGPU_MODE": "mps", "TANDEM_SOFTGPU_PROFILE": "h200"}
    place.env |= {"TEST_IMAGE": str(image)}
    config = place.folder / "config.toml"
    config.write_text(
        '[scheduler]\npolicy = "fair"\nprobe_sets = false\nquantum_ms = 5\n'
        '[gpu."*"]\nmode = "mps+green"\n[partition]\nplanner = "on"\nwindow_s = 0.5\n'
    )
    place.start_daemon("--config", str(config))
    trainer, server = place.job("trainer"), place.job("server", "--slo", "p99=200ms", "--sm", "25%")
    trainer.go_on("lambda: __import__('steady').train(gpu, 25_000)")
    server.start(f"__import__('steady').serve(gpu, {SERVED.format(SECONDS)})")

    server.result()

    told = PLANNED.search(place.explain("server"))
    foretold_ms, doubt, measured_ms = map(float, told.groups())
    assert foretold_ms == pytest.approx(measured_ms, rel=0.25)
    assert 0 < doubt < 50
