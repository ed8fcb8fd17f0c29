"""Which operations follow which, and which bytes are why: the rules of docs/dag.md by brute force.

Sets of nodes are the bits of an integer. Nothing is reduced or forgotten: `ended[n]` holds every
node that has certainly ended when n begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tandem._native import EdgeKind, Operation, OperationKind, StreamKind

HOST_WAITS, UNRESOLVED, UNKNOWN_ORDER, PROGRAMMATIC = 1, 4, 8, 16
KERNELS = (OperationKind.LAUNCH, OperationKind.GRAPH)
SYNCS = (OperationKind.SYNC_STREAM, OperationKind.SYNC_EVENT, OperationKind.SYNC_CONTEXT)
BYTES = 32  # of memory; one more stands for all the rest

Access = tuple[int, int, bool]


def members(nodes: int) -> Iterator[int]:
    """Yield the nodes of a set, newest first."""
    while nodes:
        newest = nodes.bit_length() - 1
        yield newest
        nodes ^= 1 << newest


@dataclass(eq=False)
class Chain:
    """A stream, or a thread."""

    context: int
    kind: StreamKind | None = None
    nodes: int = 0
    waited: int = 0  # for a thread: nodes whose end it has seen


@dataclass
class Byte:
    """The last users of a byte."""

    writer: int | None = None
    is_unknown: bool = False  # whether the writer wrote is unknown
    readers: set[int] = field(default_factory=set)


class Model:
    """Nodes in the order of their calls."""

    def __init__(self) -> None:
        self.chains: list[Chain] = []
        self.chain: list[Chain] = []  # for each node
        self.kinds: list[OperationKind] = []
        self.ended: list[int] = []
        self.beside: list[int | None] = []  # the kernel that a node may overlap
        self.resolved: list[bool] = []
        self.accesses: list[list[Access]] = []
        self.data_edges: list[set[tuple[int, EdgeKind]]] = []
        self.doubts: list[int] = []
        # The graph may have forgotten that an event was recorded, and so that its record is not
        # missing.
        self.possible_doubts: list[int] = []
        self._has_lost = False
        self._recorded: dict[int, int] = {}
        self._bytes = [Byte() for _ in range(BYTES + 1)]
        self._barrier: int | None = None

    def add_chain(self, context: int, kind: StreamKind | None = None) -> Chain:
        """Adds a stream, or a thread if no kind is given."""
        self.chains.append(Chain(context, kind))
        return self.chains[-1]

    def add(
        self,
        op: Operation,
        thread: Chain,
        stream: Chain | None,
        accesses: list[Access] | None,
        *,
        begin: int,
    ) -> int:
        """Adds the next node; the graph keeps those from `begin` on."""
        node = len(self.ended)
        self._doubt(op, node, begin)
        is_of_host = stream is None or op.kind in SYNCS
        waits = thread.waited
        beside = None
        if op.kind in SYNCS or is_of_host:
            waits |= self._awaited_by_host(op, thread, stream)
            chain = thread
        else:
            assert stream is not None
            beside = self._overlapped(op, stream)
            waits |= self._awaited_in_stream(op, stream, beside)
            chain = stream
        self._append(op, chain, waits, beside)
        if is_of_host or op.flags & HOST_WAITS:
            thread.waited |= 1 << node | self.ended[node]
        if op.kind is OperationKind.EVENT_RECORD:
            self._recorded[op.object] = chain.nodes
        self._use(op, node, accesses)
        return node

    def _doubt(self, op: Operation, node: int, begin: int) -> None:
        waits_for_event = op.kind in (OperationKind.EVENT_WAIT, OperationKind.SYNC_EVENT)
        recorded = self._recorded.get(op.object, 0)
        if op.kind is OperationKind.MEMOP or (waits_for_event and self._has_lost and not recorded):
            self.doubts.append(node)
        elif waits_for_event and self._has_lost and recorded.bit_length() <= begin:
            self.possible_doubts.append(node)

    def _append(self, op: Operation, chain: Chain, waits: int, beside: int | None) -> None:
        ended = waits
        for other in members(waits):
            ended |= self.ended[other]
        if beside is not None:
            ended |= self.ended[beside]
        chain.nodes |= 1 << len(self.ended)
        self.ended.append(ended)
        self.chain.append(chain)
        self.kinds.append(op.kind)
        self.beside.append(beside)

    def _awaited_by_host(self, op: Operation, thread: Chain, stream: Chain | None) -> int:
        if op.kind is OperationKind.SYNC_STREAM:
            assert stream is not None
            return stream.nodes
        if op.kind is OperationKind.SYNC_EVENT:
            return self._recorded.get(op.object, 0)
        if op.kind is not OperationKind.SYNC_CONTEXT:
            return 0
        return self._nodes_of(thread.context, tuple(StreamKind))

    def _awaited_in_stream(self, op: Operation, stream: Chain, beside: int | None) -> int:
        waits = stream.nodes if beside is None else 0
        if stream.kind is StreamKind.LEGACY:
            waits |= self._nodes_of(stream.context, (StreamKind.BLOCKING,))
        if stream.kind is StreamKind.BLOCKING:
            waits |= self._nodes_of(stream.context, (StreamKind.LEGACY,))
        if op.kind is OperationKind.EVENT_WAIT:
            waits |= self._recorded.get(op.object, 0)
        return waits

    def _nodes_of(self, context: int, kinds: tuple[StreamKind, ...]) -> int:
        nodes = 0
        for chain in self.chains:
            if chain.context == context and chain.kind in kinds:
                nodes |= chain.nodes
        return nodes

    def _overlapped(self, op: Operation, stream: Chain) -> int | None:
        if not op.flags & PROGRAMMATIC or op.kind is not OperationKind.LAUNCH:
            return None
        for node in members(stream.nodes):
            if self.kinds[node] is not OperationKind.EVENT_RECORD:
                return node if self.kinds[node] in KERNELS else None
        return None

    def forget_event(self, event: int) -> None:
        """Destroys the event."""
        self._recorded.pop(event, None)

    def lose(self) -> None:
        """Notes that operations are missing here."""
        self._recorded.clear()
        self._has_lost = True
        self._bytes = [Byte() for _ in range(BYTES + 1)]
        self._barrier = None
        self.doubts.append(len(self.ended))

    def is_before(self, first: int, second: int) -> bool:
        """Tell whether the first has certainly ended when the second begins."""
        return bool(self.ended[second] >> first & 1)

    def edges(self, node: int, begin: int) -> set[tuple[int, bool]]:
        """Return the fewest edges that imply `ended`, each with whether it is an overlap edge.

        Only nodes from `begin` on count. An edge from a node implies its chain up to that node; an
        overlap edge implies everything that had ended when the other node began.
        """
        wanted = found = self.ended[node]
        for later in members(wanted):
            up_to = self.chain[later].nodes & ((1 << later) - 1)
            found &= ~(self.ended[later] | up_to)
        edges = set()
        beside = self.beside[node]
        if beside is not None and not wanted >> beside & 1:
            found &= ~self.ended[beside]
            edges.add((beside, True))
        edges |= {(other, False) for other in members(found)}
        return {(other, overlaps) for other, overlaps in edges if other >= begin}

    def is_independent(self, first: int, second: int) -> bool | None:
        """Tell whether no order is kept and none is needed; None where the graph need not say."""
        first, second = sorted((first, second))
        if first == second or self.is_before(first, second):
            return False
        if any(first < doubt <= second for doubt in self.doubts):
            return False
        if self.may_overlap(first, second):
            return False
        return None if any(first < d <= second for d in self.possible_doubts) else True

    def may_overlap(self, first: int, second: int) -> bool:
        """Tell whether the two may share a byte that one of them writes."""
        if not (self.resolved[first] and self.resolved[second]):
            return True
        used: list[tuple[set[int], set[int]]] = []
        for node in (first, second):
            read, written = set[int](), set[int]()
            for address, count, is_const in self.accesses[node]:
                (read if is_const else written).update(range(address, address + count))
            used.append((read | written, written))
        (one, one_written), (other, other_written) = used
        return bool(one & other_written or one_written & other)

    def _use(self, op: Operation, node: int, accesses: list[Access] | None) -> None:
        known = accesses is not None or op.kind in (
            *SYNCS,
            OperationKind.EVENT_RECORD,
            OperationKind.EVENT_WAIT,
        )
        if accesses is None and op.kind in (
            OperationKind.MEMSET,
            OperationKind.ALLOC,
            OperationKind.FREE,
        ):
            known, accesses = True, [(op.object, op.bytes, False)]
        self.accesses.append(accesses or [])
        self.resolved.append(known and not op.flags & UNRESOLVED)
        edges: set[tuple[int, EdgeKind]] = set()
        if self.resolved[node]:
            self._use_known(op.kind, node, edges)
        else:
            self._use_unknown(node, edges)
        self.data_edges.append({(other, kind) for other, kind in edges if other != node})

    def _use_known(self, kind: OperationKind, node: int, edges: set[tuple[int, EdgeKind]]) -> None:
        for is_reading in (True, False):
            for address, count, is_const in self.accesses[node]:
                for byte in self._bytes[address : address + count]:
                    if is_const is is_reading:
                        self._touch(byte, kind, node, is_const, edges)

    def _touch(
        self,
        byte: Byte,
        kind: OperationKind,
        node: int,
        is_const: bool,
        edges: set[tuple[int, EdgeKind]],
    ) -> None:
        if is_const:
            self._after_writer(byte, EdgeKind.READ_AFTER_WRITE, edges)
            byte.readers.add(node)
            return
        if kind is not OperationKind.ALLOC:
            edges |= {(reader, EdgeKind.WRITE_AFTER_READ) for reader in byte.readers}
            if not byte.readers:
                self._after_writer(byte, EdgeKind.WRITE_AFTER_WRITE, edges)
            byte.writer, byte.is_unknown, byte.readers = node, False, set()
        if kind in (OperationKind.ALLOC, OperationKind.FREE):
            byte.writer, byte.is_unknown, byte.readers = self._barrier, True, set()

    @staticmethod
    def _after_writer(byte: Byte, kind: EdgeKind, edges: set[tuple[int, EdgeKind]]) -> None:
        if byte.writer is not None:
            edges.add((byte.writer, EdgeKind.UNKNOWN_DATA if byte.is_unknown else kind))

    def _use_unknown(self, node: int, edges: set[tuple[int, EdgeKind]]) -> None:
        for byte in self._bytes:
            edges |= {(reader, EdgeKind.UNKNOWN_DATA) for reader in byte.readers}
            if not byte.readers:
                self._after_writer(byte, EdgeKind.UNKNOWN_DATA, edges)
        self._bytes = [Byte(node, is_unknown=True) for _ in range(BYTES + 1)]
        self._barrier = node
