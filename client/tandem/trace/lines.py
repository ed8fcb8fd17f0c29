"""Calls as text, one line each: for people as strace prints them, for programs as JSON."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tandem.trace.records import LEGACY_STREAM, PER_THREAD_STREAM, Call, Lost
from tandem.trace.table import CallType, Parameter, Table

_INTEGERS = {
    "int": 32,
    "CUdevice": 32,
    "unsigned int": 0,
    "unsigned short": 0,
    "unsigned char": 0,
    "size_t": 0,
    "cuuint32_t": 0,
    "cuuint64_t": 0,
    "size_t *": 0,
}  # type -> bits of a signed type, 0 = unsigned
_SMALL = 1 << 32  # kernel parameters of at least this value are shown as addresses


class Stamp(Enum):
    """The time that a line begins with."""

    NONE = "none"
    TIME = "time"  # seconds on the call's clock
    RELATIVE = "relative"  # seconds since the previous line


@dataclass(slots=True)
class Printer:
    """Formats the lines of one output."""

    table: Table
    stamp: Stamp = Stamp.NONE
    as_json: bool = False
    _last_ns: int | None = None

    def line(self, item: Call | Lost) -> str:
        """Format the line of a call, or of a gap."""
        if isinstance(item, Lost):
            if self.as_json:
                return json.dumps({"pid": item.pid, "tid": item.tid, "lost_calls": item.count})
            return f"{who(item.pid, item.tid)} +++ {item.count} calls were not recorded +++"
        if self.as_json:
            return json.dumps(as_dict(item, self.table))
        return f"{self._stamped(item)}{who(item.pid, item.tid)} {text_of(item, self.table)}"

    def _stamped(self, call: Call) -> str:
        if self.stamp is Stamp.NONE:
            return ""
        ns = call.start_ns
        if self.stamp is Stamp.RELATIVE:
            since = ns if self._last_ns is None else self._last_ns
            self._last_ns = ns
            ns = max(0, ns - since)
        return f"{ns // 10**9:6}.{ns % 10**9:09} "


def who(pid: int, tid: int) -> str:
    """The process, and the thread if it is not the main one."""
    return f"[pid {pid}]" if pid == tid else f"[pid {pid} tid {tid}]"


def text_of(call: Call, table: Table) -> str:
    """Format `cuMemAlloc_v2(dptr=[0x7f...], bytesize=4096) = CUDA_SUCCESS <1.2us>`."""
    if call.duration_ns is None or call.result is None:
        return f"{call.type.name}( <unfinished ...>"
    device = "" if call.device_ns is None else f" {{on the GPU {duration_text(call.device_ns)}}}"
    arguments = ", ".join(f"{name}={value}" for name, value in arguments_of(call, table))
    result = table.result_name(call.result)
    return f"{call.type.name}({arguments}) = {result} <{duration_text(call.duration_ns)}>{device}"


def as_dict(call: Call, table: Table) -> dict[str, object]:
    """The call as a dict with stable keys; times in nanoseconds."""
    return {
        "pid": call.pid,
        "tid": call.tid,
        "number": call.number,
        "call": call.type.name,
        "class": call.type.group,
        "arguments": dict(arguments_of(call, table)) if call.result is not None else None,
        "result": None if call.result is None else table.result_name(call.result),
        "start_ns": call.start_ns,
        "duration_ns": call.duration_ns,
        "device_ns": call.device_ns,
        "stream": call.stream,
        "context": call.context,
        "kernel": call.function.name if call.function else None,
    }


def arguments_of(call: Call, table: Table) -> list[tuple[str, str]]:
    """The name and the text of each argument."""
    shown = []
    for parameter, offset in zip(call.type.parameters, call.type.offsets, strict=True):
        show = _SHAPES[parameter.shape]
        shown.append((parameter.name, show(call, parameter, offset, table)))
    return shown


def duration_text(ns: int) -> str:
    """A duration with three or four digits and a unit."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= scale:
            value = ns / scale
            return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f}{unit}"
    return f"{ns}ns"


def _value(call: Call, parameter: Parameter, offset: int, table: Table) -> str:
    word = call.words[offset]
    if parameter.type == "CUfunction" and call.function and call.function.name:
        return call.function.name
    if parameter.type == "CUstream":
        return _stream(word)
    return _scalar(word, parameter.type.removeprefix("const "), table)


def _scalar(word: int, kind: str, table: Table) -> str:
    if kind in table.enums:
        return table.enums[kind].get(word, f"{kind}({word})")
    if kind not in _INTEGERS:
        return _address(word)
    bits = _INTEGERS[kind]
    if bits:
        word &= (1 << bits) - 1
        return str(word - (1 << bits) if word >> (bits - 1) else word)
    return str(word)


def _stream(word: int) -> str:
    names = {LEGACY_STREAM: "CU_STREAM_LEGACY", PER_THREAD_STREAM: "CU_STREAM_PER_THREAD"}
    return names.get(word) or _address(word)


def _address(word: int) -> str:
    return f"{word:#x}" if word else "NULL"


def _out(call: Call, parameter: Parameter, offset: int, table: Table) -> str:
    pointer, value = call.words[offset : offset + 2]
    if not pointer:
        return "NULL"
    if call.result != 0:
        return _address(pointer)
    kind = parameter.type if parameter.type == "size_t *" else parameter.type.removesuffix(" *")
    return f"[{_scalar(value, kind, table)}]"


def _text(call: Call, _parameter: Parameter, offset: int, _table: Table) -> str:
    return json.dumps(call.text) if call.words[offset] else "NULL"


def _kernel(call: Call, _parameter: Parameter, offset: int, _table: Table) -> str:
    address = call.words[offset]
    if not address or call.result != 0 or call.function is None:
        return _address(address)
    values = kernel_parameters(call)
    more = ["..."] if call.is_cut else []
    return "[" + ", ".join([*(_parameter_text(size, v) for size, v in values), *more]) + "]"


def kernel_parameters(call: Call) -> list[tuple[int, tuple[int, ...]]]:
    """The size in bytes and the words of each recorded parameter of a launch."""
    found = []
    at = call.type.words
    for _, size in call.function.parameters if call.function else ():
        count = -(-size // 8)
        words = call.words[at : at + count]
        if len(words) < count:
            break
        found.append((size, words))
        at += count
    return found


def _parameter_text(size: int, words: tuple[int, ...]) -> str:
    if len(words) != 1:
        return "{" + " ".join(f"{word:#x}" for word in words) + "}"
    word = words[0] & ((1 << (8 * size)) - 1)
    return str(word) if word < _SMALL else f"{word:#x}"


def _config(call: Call, _parameter: Parameter, offset: int, _table: Table) -> str:
    pointer, gx, gy, gz, bx, by, bz, shared, attributes, stream = call.words[offset : offset + 10]
    if not pointer:
        return "NULL"
    return (
        f"{{grid=({gx}, {gy}, {gz}), block=({bx}, {by}, {bz}), sharedMemBytes={shared}, "
        f"hStream={_stream(stream)}, numAttrs={attributes}}}"
    )


def _copy2d(call: Call, _parameter: Parameter, offset: int, table: Table) -> str:
    pointer, *words = call.words[offset : offset + 17]
    if not pointer:
        return "NULL"
    ends = []
    for name, end in (("src", words[:7]), ("dst", words[7:14])):
        kind, host, device, array, pitch, x, y = end
        ends.append(
            f"{name}={_end(kind, host, device, array, table)}, {name}Pitch={pitch}, "
            f"{name}XInBytes={x}, {name}Y={y}"
        )
    return f"{{{', '.join(ends)}, WidthInBytes={words[14]}, Height={words[15]}}}"


def _copy3d(call: Call, _parameter: Parameter, offset: int, table: Table) -> str:
    pointer, *words = call.words[offset : offset + 16]
    if not pointer:
        return "NULL"
    ends = []
    for name, end in (("src", words[:6]), ("dst", words[6:12])):
        kind, host, device, array, pitch, height = end
        where = _end(kind, host, device, array, table)
        ends.append(f"{name}={where}, {name}Pitch={pitch}, {name}Height={height}")
    width, rows, depth = words[12:15]
    return f"{{{', '.join(ends)}, WidthInBytes={width}, Height={rows}, Depth={depth}}}"


def _end(kind: int, host: int, device: int, array: int, table: Table) -> str:
    address = {1: host, 3: array}.get(kind, device)
    name = table.enums.get("CUmemorytype", {}).get(kind, str(kind)).removeprefix("CU_MEMORYTYPE_")
    return f"{name} {_address(address)}"


_SHAPES: dict[str, Callable[[Call, Parameter, int, Table], str]] = {
    "value": _value,
    "out": _out,
    "text": _text,
    "kernel": _kernel,
    "config": _config,
    "copy2d": _copy2d,
    "copy3d": _copy3d,
}


def bytes_of(call: Call) -> int | None:
    """The bytes that a copy moves or an allocation takes; None for other calls."""
    kind: CallType = call.type
    for name in ("bytesize", "ByteCount"):
        if (found := kind.value(call.words, name)) is not None:
            return found
    return None
