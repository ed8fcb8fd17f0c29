"""What the generator knows of the state a program has reached.

Rules
1. The state is a forecast: a call may fail where the model thinks it succeeds, and nothing depends
   on it. What must hold whatever fails is that no two streams touch the same bytes at once, because
   the shim moves work in time: so every device buffer and host buffer belongs to one lane.
2. A lane is a stream with its buffers. A buffer goes to another lane through an event.
3. A call that waits or orders may fail too, above all near a capture, and then orders nothing: it
   is an `order`, and what would race without it relies on it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from proof_program import Program, Step

THREADS = 3
PEER = 9  # "thread" of the second process
WORDS = 1024  # of 4 bytes in a buffer
BUFFER_BYTES = WORDS * 4


@dataclass(eq=False, kw_only=True)
class Buffer:
    """Device memory."""

    name: str
    how: str  # the call that made it
    source: str = ""  # its first name
    is_reachable: bool = True  # from other streams and by plain copies
    in_graphs: int = 0


@dataclass(frozen=True, kw_only=True)
class Array:
    """An array of the device."""

    name: str
    height: int  # 0: of one dimension
    whole: str  # what is destroyed in the end: it, or what it is a level of


@dataclass(eq=False, kw_only=True)
class Graph:
    """An executable graph, and the buffers its nodes touch."""

    name: str
    lane: Lane
    buffers: list[Buffer]
    kinds: list[int] = field(default_factory=list)  # of the nodes of a chain made by hand


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
    """A stream, its buffers on the device and on the host."""

    number: int
    stream: str  # as an argument
    context: str
    suffix: str = ""  # forced: calls of the per-thread default stream
    thread: int | None = None  # whose per-thread default stream it is
    is_blocking: bool = True  # waits for the legacy stream, and it for this one
    buffers: list[Buffer] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    hosts: list[int] = field(default_factory=list)
    capture: Capture | None = None
    notes: int = 0

    @property
    def is_default(self) -> bool:
        return not self.stream.startswith("s")


class Choices:
    """Bytes that decide; zero, the simplest choice, when they have run out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> int:
        """A number below `count`."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1] % count

    def pick(self, options):
        return options[self.take(len(options))]

    def many(self) -> Choices:
        """For what has more to decide than there are bytes; simple choices stay simple."""
        left = self._data[self._at :]
        return Choices(hashlib.shake_128(left).digest(100) if any(left) else b"")

    def seldom(self) -> bool:
        return self.take(16) == 15


class Model:
    """The program so far."""

    def __init__(self) -> None:
        self.program = Program()
        self.choices = Choices(b"")
        self.is_tame = False  # uses no handle of what is no more
        self.has_peer = False  # a second process
        self.is_aside = False  # what comes now runs side by side with other threads' steps
        self.stacks: list[list[str]] = [[] for _ in range(THREADS)]
        self.contexts: list[str] = []
        self.devices: dict[str, int] = {}  # of the contexts that ever were
        self.primary = ""  # of a device but the first
        self.lanes: list[Lane] = []
        self.graphs: list[Graph] = []
        self.events: list[str] = []  # recorded or not, of no capture
        self.pools: dict[str, int] = {}  # and their devices
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
        """Make a context current there, if it is not."""
        if self.current(thread) == context:
            return
        self.emit(thread, "cuCtxSetCurrent", context)
        self.stacks[thread][-1:] = [context]

    def thread_for(self, lane: Lane) -> int:
        """Some thread, with the lane's context current."""
        thread = self.choices.take(THREADS) if lane.thread is None else lane.thread
        self.enter(thread, lane.context)
        return thread

    def order(self, thread: int, symbol: str, *arguments: object, **more) -> None:
        """A call that steps with `relies_on_order` rely on, up to the next one."""
        self.emit(thread, symbol, *arguments, verb="order", **more)

    def name_anew(self, buffer: Buffer) -> None:
        """Without the order before there is no such name, and nothing touches the bytes again."""
        name = self.new("d")
        self.emit(0, name, buffer.name, verb="name", relies_on_order=True)
        buffer.name = name

    def work(
        self, lane: Lane, symbol: str, *arguments: object, thread: int | None = None, **more
    ) -> None:
        """One call that gives a lane's stream work."""
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
        """The symbol as this lane's stream wants it; either does where a stream is named."""
        if lane.suffix:
            return symbol + lane.suffix
        plain = lane.stream == "0" or self.choices.take(2) == 0
        return symbol if plain else symbol + "_ptsz"

    def touch(self, lane: Lane, *buffers: Buffer) -> None:
        """Work on these is being captured, or done."""
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
