"""Replaces NVIDIA's package, which takes half of the time of importing cuda.bindings.

That package looks for the libraries of toolkits in many places. Programs that find this folder
first need only the driver, whose name the loader knows. Unmodified clients with the real package
are tested in tests/matrix and tests/gpu.
"""

import ctypes
import os
from types import SimpleNamespace


def load_nvidia_dynamic_lib(name: str) -> SimpleNamespace:
    """Return the part of NVIDIA's answer that cuda.bindings reads."""
    if name != "cuda":
        raise RuntimeError(f"{name}: only the driver is found here")
    driver = ctypes.CDLL("libcuda.so.1", os.RTLD_NOW | os.RTLD_GLOBAL)
    return SimpleNamespace(_handle_uint=driver._handle)
