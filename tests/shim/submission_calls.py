"""Every call that gives the GPU work, with what its telemetry record must say.

The test imports it for the expectations, and the job imports it to make the calls.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

LAUNCH, COPY, MEMSET, MEMOP, HOST, GRAPH = 1, 2, 3, 9, 10, 13  # RecordKind
UNKNOWN, TO_DEVICE, FROM_DEVICE, WITHIN, BETWEEN = range(5)  # Direction
LEGACY, PER_THREAD = 1, 2  # how records name the two default streams
DEVICE, OTHER_DEVICE, HOST_MEMORY = 0x7000_0000_1000, 0x7000_0000_2000, 0x6000
ARRAY, FUNCTION, EXECUTABLE, EVENT = 0xA000, 0xF000, 0xE000, 0xEE00
STREAM = 5
SIZE = 1 << 20  # big enough for the shim to ask about

u, size, pointer = ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p
address, value64 = ctypes.c_uint64, ctypes.c_uint64
HOST_TYPE, DEVICE_TYPE, ARRAY_TYPE, UNIFIED_TYPE = 1, 2, 3, 4  # CUmemorytype


def _side(prefix: str, number: Any, at: Any, *, deep: bool, last: list[Any]) -> list[Any]:
    names = ["XInBytes", "Y", *(["Z", "LOD"] if deep else [])]
    fields = [(prefix + name, number) for name in names]
    fields += [(prefix + "MemoryType", u), (prefix + "Host", pointer)]
    fields += [(prefix + "Device", at), (prefix + "Array", pointer)]
    return fields + [(prefix + name, kind) for name, kind in last]


def _box(name: str, number: Any, at: Any, *, deep: bool) -> type:
    # Only copies between peers have contexts; elsewhere the field is reserved.
    last = [("Pitch", number)]
    if deep:
        last = [("Context", pointer), *last, ("Height", number)]
    sides = _side("src", number, at, deep=deep, last=last)
    sides += _side("dst", number, at, deep=deep, last=last)
    extent = ["WidthInBytes", "Height", *(["Depth"] if deep else [])]
    fields = [*sides, *((name, number) for name in extent)]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


Box2 = _box("Box2", size, address, deep=False)
Box2Old = _box("Box2Old", u, u, deep=False)
Box3 = _box("Box3", size, address, deep=True)
Box3Old = _box("Box3Old", u, u, deep=True)


class Location(ctypes.Structure):
    _fields_ = (("type", u), ("id", ctypes.c_int))


class Operand(ctypes.Structure):  # the pointer, which is the union's largest member
    _fields_ = (
        ("type", u),
        ("ptr", address),
        ("rowLength", size),
        ("layerHeight", size),
        ("locHint", Location),
    )


class BoxOperation(ctypes.Structure):
    _fields_ = (
        ("src", Operand),
        ("dst", Operand),
        ("extent", size * 3),
        ("srcAccessOrder", u),
        ("flags", u),
    )


class FabricOperand(ctypes.Structure):
    _fields_ = (("type", u), ("ptr", address), ("hint", Location))


class FabricOperation(ctypes.Structure):
    _fields_ = (("src", FabricOperand), ("dst", FabricOperand), ("size", size), ("flags", u))


class Decompress(ctypes.Structure):
    _fields_ = (
        ("srcNumBytes", size),
        ("dstNumBytes", size),
        ("dstActBytes", pointer),
        ("src", pointer),
        ("dst", pointer),
        ("algo", u),
        ("padding", ctypes.c_ubyte * 20),
    )


class LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", u), ("pad", u), ("value", ctypes.c_uint64 * 8))


class LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", u * 3),
        ("block", u * 3),
        ("sharedMemBytes", u),
        ("hStream", pointer),
        ("attrs", pointer),
        ("numAttrs", u),
    )


class DeviceLaunch(ctypes.Structure):
    _fields_ = (
        ("function", pointer),
        ("grid", u * 3),
        ("block", u * 3),
        ("sharedMemBytes", u),
        ("hStream", pointer),
        ("kernelParams", pointer),
    )


class InstantiateParams(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("hUploadStream", pointer),
        ("hErrNode_out", pointer),
        ("result_out", u),
    )


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call and its record; `stream` is where it goes if it names none."""

    symbol: str
    arguments: Callable[[], tuple[Any, ...]]
    kind: int
    bytes: int = 0
    direction: int = UNKNOWN
    target: int = 0
    stream: int = LEGACY
    gated: bool = True
    blocks: int = 0
    threads: int = 0
    source: int = 0

    def make(self, driver: ctypes.CDLL) -> int:
        """Make the call; structures and arrays are passed by address."""
        kept = self.arguments()
        by_address = (ctypes.Structure, ctypes.Array)
        passed = [ctypes.byref(a) if isinstance(a, by_address) else a for a in kept]
        return int(getattr(driver, self.symbol)(*passed))


def _call(symbol: str, kind: int, *arguments: Any, **record: Any) -> Call:
    def make() -> tuple[Any, ...]:
        return tuple(a() if callable(a) and not isinstance(a, type) else a for a in arguments)

    per_thread = symbol.endswith(("_ptsz", "_ptds"))
    record.setdefault("stream", PER_THREAD if per_thread else LEGACY)
    return Call(symbol=symbol, arguments=make, kind=kind, **record)


def _words(kind: Any, *values: Any) -> Callable[[], Any]:
    return lambda: (kind * len(values))(*values)


NULL = pointer(None)  # the default stream of the flavour
D, OTHER, H = address(DEVICE), address(OTHER_DEVICE), pointer(HOST_MEMORY)
A = pointer(ARRAY)
OLD_DEVICE = 0x1000
SOURCES = {"HtoD": HOST_MEMORY, "DtoH": DEVICE, "DtoD": OTHER_DEVICE}  # arrays have no address
OLD_SOURCES = {"HtoD": HOST_MEMORY, "DtoH": OLD_DEVICE, "DtoD": 0x2000}
LINES = {  # the arguments before the stream, and the record
    "HtoD": ((D, H, size(SIZE)), TO_DEVICE, DEVICE),
    "DtoH": ((H, D, size(SIZE)), FROM_DEVICE, HOST_MEMORY),
    "DtoD": ((D, OTHER, size(SIZE)), WITHIN, DEVICE),
    "DtoA": ((A, size(0), D, size(SIZE)), WITHIN, ARRAY),
    "AtoD": ((D, A, size(0), size(SIZE)), WITHIN, DEVICE),
    "HtoA": ((A, size(0), H, size(SIZE)), TO_DEVICE, ARRAY),
    "AtoH": ((H, A, size(0), size(SIZE)), FROM_DEVICE, HOST_MEMORY),
    "AtoA": ((A, size(0), A, size(8), size(SIZE)), WITHIN, ARRAY),
}
OLD_LINES = {
    "HtoD": ((u(OLD_DEVICE), H, u(SIZE)), TO_DEVICE, OLD_DEVICE),
    "DtoH": ((H, u(OLD_DEVICE), u(SIZE)), FROM_DEVICE, HOST_MEMORY),
    "DtoD": ((u(OLD_DEVICE), u(0x2000), u(SIZE)), WITHIN, OLD_DEVICE),
    "DtoA": ((A, u(0), u(OLD_DEVICE), u(SIZE)), WITHIN, ARRAY),
    "AtoD": ((u(OLD_DEVICE), A, u(0), u(SIZE)), WITHIN, OLD_DEVICE),
    "HtoA": ((A, u(0), H, u(SIZE)), TO_DEVICE, ARRAY),
    "AtoH": ((H, A, u(0), u(SIZE)), FROM_DEVICE, HOST_MEMORY),
    "AtoA": ((A, u(0), A, u(8), u(SIZE)), WITHIN, ARRAY),
}
WITH_STREAM = ("HtoD", "DtoH", "DtoD", "HtoA", "AtoH")


def _lines() -> Iterator[Call]:
    for way, (arguments, direction, target) in LINES.items():
        record = {"bytes": SIZE, "direction": direction, "target": target}
        record["source"] = SOURCES.get(way, 0)
        for flavour in ("", "_ptds"):
            yield _call(f"cuMemcpy{way}_v2{flavour}", COPY, *arguments, **record)
        for flavour in ("", "_ptsz") if way in WITH_STREAM else ():
            yield _call(f"cuMemcpy{way}Async_v2{flavour}", COPY, *arguments, NULL, **record)
    for way, (arguments, direction, target) in OLD_LINES.items():
        record = {"bytes": SIZE, "direction": direction, "target": target}
        record["source"] = OLD_SOURCES.get(way, 0)
        yield _call(f"cuMemcpy{way}", COPY, *arguments, **record)
        if way in WITH_STREAM:
            yield _call(f"cuMemcpy{way}Async", COPY, *arguments, NULL, **record)
    # For these the shim asks the driver what the pointers are.
    record = {"bytes": SIZE, "direction": TO_DEVICE, "target": DEVICE, "source": HOST_MEMORY}
    unified = (D, address(HOST_MEMORY), size(SIZE))
    for flavour in ("", "_ptds"):
        yield _call(f"cuMemcpy{flavour}", COPY, *unified, **record)
    for flavour in ("", "_ptsz"):
        yield _call(f"cuMemcpyAsync{flavour}", COPY, *unified, NULL, **record)
        symbol = f"cuMemcpyWithAttributesAsync{flavour}"
        yield _call(symbol, COPY, *unified, NULL, NULL, **record)


def _peers() -> Iterator[Call]:
    one, two = pointer(0x1000), pointer(0x1100)
    record = {"bytes": SIZE, "direction": BETWEEN, "target": DEVICE, "source": OTHER_DEVICE}
    for flavour in ("", "_ptds"):
        yield _call(f"cuMemcpyPeer{flavour}", COPY, D, one, OTHER, two, size(SIZE), **record)
        yield _call(f"cuMemcpy3DPeer{flavour}", COPY, _peer_box, **record)
    for flavour in ("", "_ptsz"):
        arguments = (D, one, OTHER, two, size(SIZE), NULL)
        yield _call(f"cuMemcpyPeerAsync{flavour}", COPY, *arguments, **record)
        yield _call(f"cuMemcpy3DPeerAsync{flavour}", COPY, _peer_box, NULL, **record)


def _peer_box() -> Any:
    box = _filled(Box3, DEVICE_TYPE, DEVICE_TYPE, depth=2)
    box.srcContext, box.dstContext = 0x1000, 0x1100
    return box


def _filled(kind: Any, source: int, destination: int, *, depth: int = 0) -> Any:
    box = kind(WidthInBytes=SIZE // 8, Height=8 // max(depth, 1))
    if depth:
        box.Depth = depth
    box.srcMemoryType, box.dstMemoryType = source, destination
    box.srcHost = box.dstHost = HOST_MEMORY
    old = kind in (Box2Old, Box3Old)
    box.srcDevice, box.dstDevice = (0x2000, OLD_DEVICE) if old else (OTHER_DEVICE, DEVICE)
    box.srcArray = box.dstArray = ARRAY
    return box


def _boxes() -> Iterator[Call]:
    to_device = {"bytes": SIZE, "direction": TO_DEVICE, "target": DEVICE, "source": HOST_MEMORY}
    new2 = lambda: _filled(Box2, HOST_TYPE, DEVICE_TYPE)  # noqa: E731
    new3 = lambda: _filled(Box3, HOST_TYPE, DEVICE_TYPE, depth=2)  # noqa: E731
    for flavour in ("", "_ptds"):
        yield _call(f"cuMemcpy2D_v2{flavour}", COPY, new2, **to_device)
        yield _call(f"cuMemcpy2DUnaligned_v2{flavour}", COPY, new2, **to_device)
        yield _call(f"cuMemcpy3D_v2{flavour}", COPY, new3, **to_device)
    for flavour in ("", "_ptsz"):
        yield _call(f"cuMemcpy2DAsync_v2{flavour}", COPY, new2, NULL, **to_device)
        yield _call(f"cuMemcpy3DAsync_v2{flavour}", COPY, new3, NULL, **to_device)
    from_device = {"bytes": SIZE, "direction": FROM_DEVICE, "target": HOST_MEMORY, "source": 0x2000}
    old2 = lambda: _filled(Box2Old, DEVICE_TYPE, HOST_TYPE)  # noqa: E731
    old3 = lambda: _filled(Box3Old, DEVICE_TYPE, HOST_TYPE, depth=2)  # noqa: E731
    for symbol in ("cuMemcpy2D", "cuMemcpy2DUnaligned"):
        yield _call(symbol, COPY, old2, **from_device)
    yield _call("cuMemcpy3D", COPY, old3, **from_device)
    yield _call("cuMemcpy2DAsync", COPY, old2, NULL, **from_device)
    yield _call("cuMemcpy3DAsync", COPY, old3, NULL, **from_device)


def _operations(kind: int) -> Callable[[], Any]:
    def make() -> Any:
        one = BoxOperation()
        one.src.type = one.dst.type = kind
        one.src.ptr, one.dst.ptr = OTHER_DEVICE, (DEVICE if kind == 1 else ARRAY)
        one.extent[:] = (SIZE // 8, 4, 1)
        return (BoxOperation * 2)(one, one)

    return make


def _fabric() -> Any:
    one = FabricOperation(size=SIZE // 2)
    return (FabricOperation * 2)(one, one)


def _compressed() -> Any:
    one = Decompress(dstNumBytes=SIZE // 2, srcNumBytes=1, dst=DEVICE)
    return (Decompress * 2)(one, one)


def _batches() -> Iterator[Call]:
    two = size(2)
    lists = (_words(address, DEVICE, DEVICE + 8), _words(address, OTHER_DEVICE, OTHER_DEVICE + 8))
    sizes = _words(size, SIZE // 4, SIZE * 3 // 4)
    zero = ctypes.c_uint64(0)
    within = {"bytes": SIZE, "direction": WITHIN, "target": DEVICE}
    arrays = within | {"target": ARRAY}
    locations = lambda: (Location * 1)(Location(1, 0))  # noqa: E731
    to_device = within | {"direction": TO_DEVICE}
    copied = within | {"source": OTHER_DEVICE}
    for flavour in ("", "_ptsz"):
        old = (*lists, sizes, two, NULL, NULL, two, NULL, NULL)
        yield _call(f"cuMemcpyBatchAsync{flavour}", COPY, *old, **copied)
        yield _call(f"cuMemcpyBatchAsync_v2{flavour}", COPY, *old[:-1], **copied)
        boxes = (two, _operations(1), NULL, zero, NULL)
        yield _call(f"cuMemcpy3DBatchAsync{flavour}", COPY, *boxes, **copied)
        boxes = (two, _operations(2), zero, NULL)
        yield _call(f"cuMemcpy3DBatchAsync_v2{flavour}", COPY, *boxes, **arrays)
        one = copied | {"bytes": SIZE // 2}
        symbol = f"cuMemcpy3DWithAttributesAsync{flavour}"
        yield _call(symbol, COPY, _operations(1), zero, NULL, **one)
        between = {"bytes": SIZE, "direction": BETWEEN}
        yield _call(f"cuFabricCpyBatchAsync{flavour}", COPY, two, _fabric, zero, NULL, **between)
        packed = (_compressed, two, u(0), NULL, NULL)
        yield _call(f"cuMemBatchDecompressAsync{flavour}", COPY, *packed, **within)
        move = (lists[0], sizes, two, locations, _words(size, 0), size(1), zero, NULL)
        yield _call(f"cuMemPrefetchBatchAsync{flavour}", COPY, *move, **to_device)
        yield _call(f"cuMemDiscardAndPrefetchBatchAsync{flavour}", COPY, *move, **to_device)
        drop = (lists[0], sizes, two, zero, NULL)
        dropped = within | {"bytes": 0}
        yield _call(f"cuMemDiscardBatchAsync{flavour}", MEMSET, *drop, **dropped)
        from_device = within | {"direction": FROM_DEVICE}
        home = (D, size(SIZE), ctypes.c_int(-1), NULL)
        yield _call(f"cuMemPrefetchAsync{flavour}", COPY, *home, **from_device)
        place = (D, size(SIZE), ctypes.c_uint64(1), u(0), NULL)  # a Location, passed in a register
        yield _call(f"cuMemPrefetchAsync_v2{flavour}", COPY, *place, **to_device)


def _memsets() -> Iterator[Call]:
    for bits, value in ((8, ctypes.c_ubyte(1)), (16, ctypes.c_ushort(1)), (32, u(1))):
        record = {"bytes": SIZE, "direction": WITHIN, "target": DEVICE}
        count = SIZE * 8 // bits
        line = (D, value, size(count))
        box = (D, size(SIZE), value, size(count // 4), size(4))
        for flavour in ("", "_ptds"):
            yield _call(f"cuMemsetD{bits}_v2{flavour}", MEMSET, *line, **record)
            yield _call(f"cuMemsetD2D{bits}_v2{flavour}", MEMSET, *box, **record)
        for flavour in ("", "_ptsz"):
            yield _call(f"cuMemsetD{bits}Async{flavour}", MEMSET, *line, NULL, **record)
            yield _call(f"cuMemsetD2D{bits}Async{flavour}", MEMSET, *box, NULL, **record)
        record["target"] = OLD_DEVICE
        yield _call(f"cuMemsetD{bits}", MEMSET, u(OLD_DEVICE), value, u(count), **record)
        old = (u(OLD_DEVICE), u(SIZE), value, u(count // 4), u(4))
        yield _call(f"cuMemsetD2D{bits}", MEMSET, *old, **record)


def _config() -> Any:
    return LaunchConfig(grid=(4, 2, 1), block=(32, 1, 1))


def _device_launches() -> Any:
    one = DeviceLaunch(function=FUNCTION, grid=(4, 2, 1), block=(32, 1, 1), hStream=STREAM)
    return (DeviceLaunch * 1)(one)


def _launches() -> Iterator[Call]:
    record = {"target": FUNCTION, "blocks": 8, "threads": 32}
    shape = (u(4), u(2), u(1), u(32), u(1), u(1), u(0))
    function, none = pointer(FUNCTION), (NULL, NULL)
    for flavour in ("", "_ptsz"):
        plain = (function, *shape, NULL)
        yield _call(f"cuLaunchKernel{flavour}", LAUNCH, *plain, *none, **record)
        yield _call(f"cuLaunchCooperativeKernel{flavour}", LAUNCH, *plain, NULL, **record)
        yield _call(f"cuLaunchKernelEx{flavour}", LAUNCH, _config, function, *none, **record)
        graph = (pointer(EXECUTABLE), NULL)
        yield _call(f"cuGraphLaunch{flavour}", GRAPH, *graph, target=EXECUTABLE)
        upload = {"target": EXECUTABLE, "direction": TO_DEVICE}
        yield _call(f"cuGraphUpload{flavour}", COPY, *graph, **upload)
        new = (NULL, pointer(EXECUTABLE), lambda: InstantiateParams(flags=2))
        yield _call(f"cuGraphInstantiateWithParams{flavour}", COPY, *new, **upload)
    several = (_device_launches, u(1), u(0))
    symbol = "cuLaunchCooperativeKernelMultiDevice"
    yield _call(symbol, LAUNCH, *several, stream=STREAM, **record)
    old = {"target": FUNCTION, "threads": 0}
    yield _call("cuLaunch", LAUNCH, function, blocks=1, **old)
    grid = (function, ctypes.c_int(4), ctypes.c_int(2))
    yield _call("cuLaunchGrid", LAUNCH, *grid, blocks=8, **old)
    yield _call("cuLaunchGridAsync", LAUNCH, *grid, NULL, blocks=8, **old)


def _free() -> Iterator[Call]:
    function = pointer(FUNCTION)
    for flavour in ("", "_ptsz"):
        host = {"target": FUNCTION, "gated": False}
        yield _call(f"cuLaunchHostFunc{flavour}", HOST, NULL, function, NULL, **host)
        yield _call(f"cuLaunchHostFunc_v2{flavour}", HOST, NULL, function, NULL, u(0), **host)
        yield _call(f"cuStreamAddCallback{flavour}", HOST, NULL, function, NULL, u(0), **host)
        for what in ("Write", "Wait"):
            for bits, value in ((32, u(1)), (64, value64(1))):
                for version in ("", "_v2"):
                    symbol = f"cuStream{what}Value{bits}{version}{flavour}"
                    record = {"target": HOST_MEMORY, "gated": False}
                    at = address(HOST_MEMORY)
                    yield _call(symbol, MEMOP, NULL, at, value, u(0), **record)
        for version in ("", "_v2"):
            symbol = f"cuStreamBatchMemOp{version}{flavour}"
            yield _call(symbol, MEMOP, NULL, u(2), NULL, u(0), target=2, gated=False)


CALLS = {
    call.symbol: call
    for rows in (_lines, _peers, _boxes, _batches, _memsets, _launches, _free)
    for call in rows()
}


def _recording_launch() -> Call:
    """Return a launch with both kinds of attributes that record an event."""
    programmatic, completion = 7, 12  # CU_LAUNCH_ATTRIBUTE_*_EVENT
    attributes = (LaunchAttribute * 2)()
    for at, (kind, event) in enumerate(((programmatic, EVENT), (completion, EVENT + 1))):
        attributes[at].id, attributes[at].value[0] = kind, event

    def config() -> Any:
        made = _config()
        made.hStream, made.numAttrs = STREAM, len(attributes)
        made.attrs = ctypes.addressof(attributes)
        return made

    return _call("cuLaunchKernelEx", LAUNCH, config, pointer(FUNCTION), NULL, NULL)


def _programmatic_launch() -> Call:
    """Return a launch that may begin before the work in front of it in its stream has ended."""
    serialization = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute = LaunchAttribute(id=serialization)
    attribute.value[0] = 1

    def config() -> Any:
        made = _config()
        made.hStream, made.numAttrs = STREAM, 1
        made.attrs = ctypes.addressof(attribute)
        return made

    return _call("cuLaunchKernelEx", LAUNCH, config, pointer(FUNCTION), NULL, NULL)


class Caller:
    """In the job: a thread that makes the calls while the main thread answers questions."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        self._driver = driver
        self._asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.begin = self._asked.put
        self.result = self._results.get
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        calls = {
            **CALLS,
            "launch that records events": _recording_launch(),
            "programmatic launch": _programmatic_launch(),
        }
        while True:
            self._results.put(calls[self._asked.get()].make(self._driver))
