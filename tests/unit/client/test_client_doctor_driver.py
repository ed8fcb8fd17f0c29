"""What `tandem doctor` says about a driver that does not start."""

from types import SimpleNamespace

import pytest

from tandem._doctor import _SOFTWARE_GPU, FAIL, check_driver


@pytest.mark.parametrize(
    ("folder", "remedy"),
    [
        (_SOFTWARE_GPU, "see its output above, and softgpu.log in its runtime directory"),
        ("/usr/lib", "look at `nvidia-smi` and the kernel's log"),
    ],
)
def test_the_remedy_is_of_the_driver_that_failed(folder, remedy):
    error = "802 (CUDA_ERROR_SYSTEM_NOT_READY)"
    probe = {"driver": f"{folder}/libcuda.so.1", "version": 13000, "init": 802, "error": error}

    (found,) = check_driver(SimpleNamespace(probe=probe))

    assert (found.level, found.remedy) == (FAIL, remedy)
    assert f"cuInit failed with {error}" in found.text
