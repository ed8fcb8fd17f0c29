"""What the generator knows about the state that a program has reached.

Rules
1. The state is a forecast. A call may fail where the model expects success, and nothing depends on
   that. Whatever fails, no two streams may touch the same bytes at once, because the shim moves
   work in time. So every device buffer and every host buffer belongs to one lane.
2. A lane is a stream with its buffers. A buffer moves to another lane through an event.
3. A call that waits or orders may fail too, especially near a capture, and then orders nothing. So
   it is an `order`, and whatever would race without it relies on it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from proof_program import Program, Step

THREADS = 3
PEER = 9  # the "thread" of the second process
WORDS = 1024  # of 4 bytes, in each buffer
BUFFER_BYTES = WORDS * 4


@dataclass(eq=False, kw_only=True)
class Buffer:
    """Device memory."""

    name: str
    how: str  # the call that made it
    source: str = ""  # its first name
    is_reachable: bool = True  # by other streams and by plain copies
    in_graphs: int = 0


@dataclass(frozen=True, kw_only=True)
class Array:
    """An array on the device."""

    name: str
    height: int  # 0: one-dimensional
    whole: str  # what is destroyed in the end: the array itself, or what it is a level of


@dataclass(eq=False, kw_only=True)
class Graph:
    """An executable graph, and the buffers that its nodes touch."""

    name: str
    lane: Lane
    buffers: list[Buffer]
    kinds: list[int] = field(default_factory=list)  # of the nodes of a handmade chain


@dataclass(eq=False, kw_only=True)
class Capture:
    """A capture between its begin and its end."""

    thread: int
    mode: int
    origin: Lane
    lanes: list[Lane]
    buffers: list[Buffer] = field(default_factory=list)


@dataclass(eq=False, kw_only=True)
class Lane:
    """A stream with its buffers on the device and on the host."""

    number: int
    stream: str  # as an argument
    context: str
    suffix: str = ""  # enforced: the lane uses calls of the per-thread default stream
    thread: int | None = None  # the thread whose per-thread default stream it is
    is_blocking: bool = True  # it and the legacy stream wait for each other
    buffers: list[Buffer] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    hosts: list[int] = field(default_factory=list)
    capture: Capture | None = None
    notes: int = 0

    @property
    def is_default(self) -> bool:
        return not self.stream.startswith("s")


class Choices:
    """Bytes that make decisions; when they run out, zero, which is the simplest choice."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> int:
        """Return a number below `count`."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1] % count

    def pick(self, options):
        return options[self.take(len(options))]

    def many(self) -> Choices:
        """Return choices for more decisions than there are bytes; simple choices stay simple."""
        left = self._data[self._at :]
        return Choices(hashlib.shake_128(left).digest(100) if any(left) else b"")

    def seldom(self) -> bool:
        return self.take(16) == 15


class Model:
    """The program so far, and the state it should have reached."""

    def __init__(self) -> None:
        self.program = Program()
        self.choices = Choices(b"")
        self.is_tame = False  # uses no handle of what has ended
        self.has_peer = False  # there is a second process
        self.is_aside = False  # new steps run side by side with other threads' steps
        self.stacks: list[list[str]] = [[] for _ in range(THREADS)]
        self.contexts: list[str] = []
        self.devices: dict[str, int] = {}  # of all contexts that ever existed
        self.primary = ""  # the primary context of a device other than the first
        self.lanes: list[Lane] = []
        self.graphs: list[Graph] = []
        self.events: list[str] = []  # recorded or not, but not captured
        self.pools: dict[str, int] = {}  # each with its device
        self.captures: list[Capture] = []
        self.free_hosts = list(range(16))
        self._numbers: dict[str, int] = {}
        self._captured: set[str] = set()
        self._streams: set[str] = set()

    def new(self, letter: str) -> str:
        number = self._numbers.get(letter, 0)
        self._numbers[letter] = number + 1
        return f"{letter}{number}"

    def emit(
        self, thread: int, symbol: str, *arguments: object, verb: str = "call", **more
    ) -> None:
        words = tuple(map(str, arguments))
        more["is_aside"] = self.is_aside
        step = Step(thread=thread, verb=verb, symbol=symbol, arguments=words, **more)
        self.program.steps.append(step)

    def current(self, thread: int) -> str:
        return self.stacks[thread][-1] if self.stacks[thread] else ""

    def enter(self, thread: int, context: str) -> None:
        """Make the context current in the thread, unless it is."""
        if self.current(thread) == context:
            return
        self.emit(thread, "cuCtxSetCurrent", context)
        self.stacks[thread][-1:] = [context]

    def thread_for(self, lane: Lane) -> int:
        """Return some thread, with the lane's context current."""
        thread = self.choices.take(THREADS) if lane.thread is None else lane.thread
        self.enter(thread, lane.context)
        return thread

    def order(self, thread: int, symbol: str, *arguments: object, **more) -> None:
        """Make a call that steps with `relies_on_order` rely on, up to the next such call."""
        self.emit(thread, symbol, *arguments, verb="order", **more)

    def name_anew(self, buffer: Buffer) -> None:
        """Rename the buffer if the last order succeeded; else nothing touches its bytes again."""
        name = self.new("d")
        self.emit(0, name, buffer.name, verb="name", relies_on_order=True)
        buffer.name = name

    def work(
        self, lane: Lane, symbol: str, *arguments: object, thread: int | None = None, **more
    ) -> None:
        """Make one call that gives the lane's stream work."""
        if thread is None:
            thread = self.thread_for(lane)
        self.emit(
            thread,
            symbol,
            *arguments,
            stream=self.stream_key(lane, symbol),
            is_work=not self.captures,
            is_captured=lane.capture is not None,
            **more,
        )

    def stream_key(self, lane: Lane, symbol: str) -> str:
        if not lane.is_default:
            return lane.stream
        if lane.stream == "0":
            return "2" if symbol.endswith(("_ptsz", "_ptds")) else "1"
        return lane.stream

    def flavour(self, lane: Lane, symbol: str) -> str:
        """Return the symbol's variant for this lane; if it names a stream, either one will do."""
        if lane.suffix:
            return symbol + lane.suffix
        plain = lane.stream == "0" or self.choices.take(2) == 0
        return symbol if plain else symbol + "_ptsz"

    def touch(self, lane: Lane, *buffers: Buffer) -> None:
        """Note that captured work uses these buffers, if the lane captures."""
        if lane.capture:
            lane.capture.buffers.extend(buffers)

    def joins(self, lane: Lane, capture: Capture) -> None:
        lane.capture = capture
        self._captured.add(lane.stream)

    def finished(self) -> Program:
        self.program.plain_streams = frozenset(
            {"1", "2", *(lane for lane in self._streams if lane not in self._captured)}
        )
        return self.program

    def add_lane(self, lane: Lane) -> Lane:
        if len(self.free_hosts) >= 1:
            lane.hosts = [self.free_hosts.pop(0)]
        self._streams.add(lane.stream)
        self.lanes.append(lane)
        return lane
