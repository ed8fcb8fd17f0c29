"""In the place of NVIDIA's package, which takes half the time that importing cuda.bindings does.

That one looks for the libraries of toolkits, in many places. Programs that find this folder before
it need the driver alone, whose name the loader knows. What unmodified clients make of the real one
is seen in tests/matrix and tests/gpu.
"""

import ctypes
import os
from types import SimpleNamespace


def load_nvidia_dynamic_lib(name: str) -> SimpleNamespace:
    """Of NVIDIA's answer what cuda.bindings reads."""
    if name != "cuda":
        raise RuntimeError(f"{name}: only the driver is found here")
    driver = ctypes.CDLL("libcuda.so.1", os.RTLD_NOW | os.RTLD_GLOBAL)
    return SimpleNamespace(_handle_uint=driver._handle)
