"""The software GPU's driver as an older CUDA version has it: without any later function."""

import os
import sys
from pathlib import Path

from tandem import softgpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "csrc"))
import ninja_build

VERSIONS = ninja_build.OLD_DRIVERS


def of_version(version, env):
    """Return an environment in which programs use a software GPU with that driver version."""
    built = ninja_build.build([f"softgpu-cuda-{version}", f"softgpu-nvml-{version}"])
    folder = next(iter(built.values())).parent
    own = {
        "LD_LIBRARY_PATH": os.pathsep.join([str(folder), env["LD_LIBRARY_PATH"]]),
        "TANDEM_SOFTGPU_BIN": str(softgpu.DEVICE_PROGRAM),
    }
    return {**env, **own}
