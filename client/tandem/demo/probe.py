"""Prints the name and capability of device 0 as JSON; exit code 1 if there is none.

It is a separate program because cuInit cannot be undone.
"""

from __future__ import annotations

import json
import sys

from cuda.bindings import driver

from tandem.demo.gpu import DriverError, check


def main() -> int:
    """Print the name and the compute capability."""
    try:
        check(driver.cuInit(0))
        device = check(driver.cuDeviceGet(0))
        name = bytes(check(driver.cuDeviceGetName(128, device))).split(b"\0")[0].decode()
        attributes = driver.CUdevice_attribute
        major, minor = (
            check(driver.cuDeviceGetAttribute(which, device))
            for which in (
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
    except (DriverError, RuntimeError) as failure:  # RuntimeError: no libcuda.so.1 at all
        sys.stderr.write(f"no device: {failure}\n")
        return 1
    sys.stdout.write(json.dumps({"name": name, "capability": f"{major}{minor}"}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
