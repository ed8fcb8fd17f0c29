"""What the driver API promises, each promise once, runnable on any device.

    TEST_IMAGE=kernels.so python tests/conformance/bodies TOPIC NAME

A topic is a module of this folder; every public function in it is one conformance test, which
test_conformance.py runs in a process of its own.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent.parent))
    topic, name = sys.argv[1:]
    getattr(importlib.import_module(topic), name)()
