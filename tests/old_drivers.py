"""The software GPU's driver as one of an older CUDA version: it has no function that came later."""

import os
import sys
from pathlib import Path

from tandem import softgpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "csrc"))
import ninja_build

VERSIONS = ninja_build.OLD_DRIVERS


def of_version(version, env):
    """The environment of programs on a software GPU, with the driver of that version."""
    built = ninja_build.build([f"softgpu-cuda-{version}", f"softgpu-nvml-{version}"])
    folder = next(iter(built.values())).parent
    own = {
        "LD_LIBRARY_PATH": os.pathsep.join([str(folder), env["LD_LIBRARY_PATH"]]),
        "TANDEM_SOFTGPU_BIN": str(softgpu.DEVICE_PROGRAM),
    }
    return {**env, **own}
