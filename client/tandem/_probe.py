"""Report what a job would see: run by `tandem doctor` as a program under the preload library.

Prints one JSON object: which libcuda.so.1 is loaded, what it says of itself, and for each way to
look up a driver function the file that its address lies in. It runs in its own process because a
broken driver may hang or kill it.
"""

import ctypes
import json
import os

FUNCTION = "cuLaunchKernel"
_CUDA_12 = 12000
_LEGACY_STREAM = 1  # CU_GET_PROC_ADDRESS_LEGACY_STREAM


def probe() -> dict[str, object]:
    """All facts about this process's driver and its preload library."""
    process = ctypes.CDLL(None)
    found: dict[str, object] = {"marks": hasattr(process, "tandem_mark_v1")}
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as exc:
        return found | {"driver": None, "error": str(exc), "lookups": {}, "gpus": []}
    lookups = {
        "dlsym of the process": _file_of_symbol(process, FUNCTION),
        "dlsym of the library": _file_of_symbol(driver, FUNCTION),
        "cuGetProcAddress": _by_proc_address(driver),
    }
    return found | _driver_facts(driver) | {"lookups": lookups}


def _driver_facts(driver: ctypes.CDLL) -> dict[str, object]:
    number = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(number))
    facts: dict[str, object] = {
        "driver": _mapped_libcuda(),
        "version": number.value,
        "checkpoints": hasattr(driver, "cuCheckpointProcessCheckpoint"),
    }
    if (result := driver.cuInit(0)) != 0:
        return facts | {"init": result, "error": _name_of(driver, result), "gpus": []}
    driver.cuDeviceGetCount(ctypes.byref(number))
    return facts | {"init": 0, "gpus": [_name(driver, i) for i in range(number.value)]}


def _name_of(driver: ctypes.CDLL, error: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorName(error, ctypes.byref(text))
    return f"{error} ({text.value.decode(errors='replace')})" if text.value else str(error)


def _name(driver: ctypes.CDLL, index: int) -> str:
    device, text = ctypes.c_int(0), ctypes.create_string_buffer(256)
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(text, len(text), device)
    return text.value.decode(errors="replace")


def _by_proc_address(driver: ctypes.CDLL) -> str | None:
    address, status = ctypes.c_void_p(), ctypes.c_int(0)
    try:
        look_up = driver.cuGetProcAddress_v2
    except AttributeError:
        return None
    look_up(
        FUNCTION.encode(),
        ctypes.byref(address),
        _CUDA_12,
        ctypes.c_uint64(_LEGACY_STREAM),
        ctypes.byref(status),
    )
    return _file_at(address.value)


def _file_of_symbol(library: ctypes.CDLL, name: str) -> str | None:
    try:
        symbol = library[name]
    except AttributeError:
        return None
    return _file_at(ctypes.cast(symbol, ctypes.c_void_p).value)


def _file_at(address: int | None) -> str | None:
    if not address:
        return None
    for first, last, path in _mappings():
        if first <= address < last:
            return path
    return None


def _mapped_libcuda() -> str | None:
    for _, _, path in _mappings():
        if os.path.basename(path).startswith("libcuda.so"):
            return path
    return None


def _mappings() -> list[tuple[int, int, str]]:
    with open("/proc/self/maps") as maps:
        lines = [line.split(maxsplit=5) for line in maps]
    spans = [(line[0].split("-"), line[5].strip()) for line in lines if len(line) > 5]
    return [(int(span[0], 16), int(span[1], 16), path) for span, path in spans]


if __name__ == "__main__":
    print(json.dumps(probe()))  # noqa: T201 - this is its whole purpose
