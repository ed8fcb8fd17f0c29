"""A program of driver calls as data, in the form for interpreter.cpp and in a readable form."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call, or one of the interpreter's other verbs, on one thread."""

    thread: int
    verb: str
    symbol: str = ""
    arguments: tuple[str, ...] = ()
    stream: str = ""  # the stream it gives work to
    is_work: bool = False  # valid work, with no capture near: a closed gate must stop it
    is_captured: bool = False  # it only becomes part of a graph: nothing may stop it
    relies_on_order: bool = False  # left out if the last `order` before it failed
    is_aside: bool = False  # runs side by side with neighbours that have this too

    def line(self) -> str:
        verb = self._marks() + self.verb
        return " ".join([str(self.thread), verb, self.symbol, *self.arguments]).rstrip()

    def _marks(self) -> str:
        return "|" * self.is_aside + "?" * self.relies_on_order

    def __str__(self) -> str:
        what = f"{self.symbol}({', '.join(self.arguments)})" if self.symbol else ""
        verb = self._marks() + ("" if self.verb == "call" else self.verb)
        return f"t{self.thread}  " + " ".join(filter(None, [verb, what]))


@dataclass(kw_only=True)
class Program:
    """Steps, in the order in which they run."""

    steps: list[Step] = field(default_factory=list)
    devices: int = 1
    # The streams that never took part in a capture: all their work must have been recorded.
    plain_streams: frozenset[str] = frozenset()

    def text(self) -> str:
        return "".join(step.line() + "\n" for step in self.steps)

    def json(self) -> str:
        rows = [asdict(step) for step in self.steps]
        plain = sorted(self.plain_streams)
        return json.dumps({"devices": self.devices, "plain_streams": plain, "steps": rows})

    def __str__(self) -> str:
        return "\n".join(f"{i:4} {step}" for i, step in enumerate(self.steps))


def program_of(text: str) -> Program:
    """Return the program that `Program.json` wrote."""
    data = json.loads(text)
    steps = [Step(**{**row, "arguments": tuple(row["arguments"])}) for row in data["steps"]]
    return Program(
        steps=steps, devices=data["devices"], plain_streams=frozenset(data["plain_streams"])
    )


def struct(size: int, **fields: tuple[int, int, object]) -> str:
    """Return a struct of `size` bytes; each field is (offset, width, argument)."""
    parts = [f"{offset}/{width}={value}" for offset, width, value in fields.values()]
    return "{" + ";".join([str(size), *parts]) + "}"


def array(values: list[str]) -> str:
    return f"[{','.join(values)}]"


def parameters(*values: object) -> str:
    """Return a kernel's parameters."""
    return f"<{','.join(map(str, values))}>"


HOST, DEVICE, ARRAY = 1, 2, 3  # CUmemorytype


def box_2d(
    to: str, source: str, width: int, height: int, pitch: int, kinds: tuple[int, int]
) -> str:
    """CUDA_MEMCPY2D from `source` to `to`; kinds: CUmemorytype of source and target."""
    at = {HOST: 24, DEVICE: 32, ARRAY: 40}, {HOST: 80, DEVICE: 88, ARRAY: 96}
    return struct(
        128,
        source_kind=(16, 4, kinds[0]),
        source=(at[0][kinds[0]], 8, source),
        source_pitch=(48, 8, pitch),
        to_kind=(72, 4, kinds[1]),
        to=(at[1][kinds[1]], 8, to),
        to_pitch=(104, 8, pitch),
        width=(112, 8, width),
        height=(120, 8, height),
    )


def box_3d(
    to: str, source: str, width: int, height: int, pitch: int, kinds: tuple[int, int]
) -> str:
    """CUDA_MEMCPY3D of one slice."""
    at = {HOST: 40, DEVICE: 48}, {HOST: 128, DEVICE: 136}
    return struct(
        200,
        source_kind=(32, 4, kinds[0]),
        source=(at[0][kinds[0]], 8, source),
        source_pitch=(72, 8, pitch),
        source_height=(80, 8, height),
        to_kind=(120, 4, kinds[1]),
        to=(at[1][kinds[1]], 8, to),
        to_pitch=(160, 8, pitch),
        to_height=(168, 8, height),
        width=(176, 8, width),
        height=(184, 8, height),
        depth=(192, 8, 1),
    )


def boxes(
    pairs: list[tuple[str, str]],
    width: int,
    height: int,
    pitch: int,
    kinds: tuple[int, int] = (DEVICE, DEVICE),
) -> str:
    """CUDA_MEMCPY3D_BATCH_OP of one slice each, (to, from); all kinds of address look alike."""
    fields: dict[str, tuple[int, int, object]] = {}
    for i, (to, source) in enumerate(pairs):
        at = i * 112
        for side, where, start in ((0, source, at), (1, to, at + 40)):
            fields |= _operand(f"{i}-{side}", start, where, pitch, is_array=kinds[side] == ARRAY)
        fields[f"{i}-width"] = (at + 80, 8, width)
        fields[f"{i}-height"] = (at + 88, 8, height)
        fields[f"{i}-depth"] = (at + 96, 8, 1)
        fields[f"{i}-order"] = (at + 104, 4, 1)  # in stream order
    return struct(112 * len(pairs), **fields)


def _operand(
    name: str, at: int, where: str, pitch: int, *, is_array: bool
) -> dict[str, tuple[int, int, object]]:
    """CUmemcpy3DOperand."""
    fields: dict[str, tuple[int, int, object]] = {f"{name}-kind": (at, 4, 2 if is_array else 1)}
    fields[f"{name}-at"] = (at + 8, 8, where)
    if not is_array:
        fields[f"{name}-pitch"] = (at + 16, 8, pitch)
    return fields


def copy_attributes(order: int) -> str:
    """CUmemcpyAttributes."""
    return struct(24, order=(0, 4, order))


def location(kind: int, number: int) -> int:
    """CUmemLocation, as passed in a register."""
    return kind | number << 32


UNSIGNED_INT8 = 1  # CUarray_format


def array_shape(width: int, height: int) -> str:
    """CUDA_ARRAY_DESCRIPTOR of bytes."""
    return struct(
        24, width=(0, 8, width), height=(8, 8, height), of=(16, 4, UNSIGNED_INT8), many=(20, 4, 1)
    )


def array_shape_3d(width: int, height: int) -> str:
    """CUDA_ARRAY3D_DESCRIPTOR of bytes in two dimensions."""
    return struct(
        40, width=(0, 8, width), height=(8, 8, height), of=(24, 4, UNSIGNED_INT8), many=(28, 4, 1)
    )


def launch_config(blocks: int, threads: int, stream: str) -> str:
    """CUlaunchConfig without attributes."""
    return struct(
        56,
        grid_x=(0, 4, blocks),
        grid_y=(4, 4, 1),
        grid_z=(8, 4, 1),
        block_x=(12, 4, threads),
        block_y=(16, 4, 1),
        block_z=(20, 4, 1),
        stream=(32, 8, stream),
    )


def kernel_node(function: str, blocks: int, threads: int, values: str) -> str:
    """CUDA_KERNEL_NODE_PARAMS."""
    return struct(
        72,
        function=(0, 8, function),
        grid_x=(8, 4, blocks),
        grid_y=(12, 4, 1),
        grid_z=(16, 4, 1),
        block_x=(20, 4, threads),
        block_y=(24, 4, 1),
        block_z=(28, 4, 1),
        values=(40, 8, values),
    )


def memset_node(to: str, value: int, element: int, width: int) -> str:
    """CUDA_MEMSET_NODE_PARAMS."""
    return struct(
        40,
        to=(0, 8, to),
        value=(16, 4, value),
        element=(20, 4, element),
        width=(24, 8, width),
        height=(32, 8, 1),
    )


def host_node(number: int) -> str:
    """CUDA_HOST_NODE_PARAMS."""
    return struct(16, function=(0, 8, "@note"), argument=(8, 8, number))


def pool_properties(device: int) -> str:
    """CUmemPoolProps: pinned memory of a device."""
    return struct(88, kind=(0, 4, 1), place=(8, 4, 1), device=(12, 4, device))


def allocation_properties(device: int) -> str:
    """CUmemAllocationProp: pinned memory of a device."""
    return struct(32, kind=(0, 4, 1), place=(8, 4, 1), device=(12, 4, device))


def access(device: int) -> str:
    """CUmemAccessDesc: read and write."""
    return struct(12, place=(0, 4, 1), device=(4, 4, device), rights=(8, 4, 3))
