"""Random jobs in the graph, against a model that knows nothing of clocks, reduction or windows."""

from __future__ import annotations

from dataclasses import dataclass

from dag_model import (
    BYTES,
    HOST_WAITS,
    PROGRAMMATIC,
    SYNCS,
    UNKNOWN_ORDER,
    UNRESOLVED,
    Access,
    Chain,
    Model,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem._native import Dag, EdgeKind, Operation, OperationKind, StreamKind

KINDS = (StreamKind.LEGACY, *(StreamKind.BLOCKING, StreamKind.NON_BLOCKING) * 2)
CONTEXTS = 2  # of two devices, or of two processes
THREADS = (0, 0, 1)  # the context of each
MANY = 200  # operations, after which a graph that forgot them moves the rest

ACTS = [
    *["launch"] * 6,
    *["record", "wait"] * 3,
    *["programmatic"] * 3,
    *["sync_stream", "sync_event", "sync_context"],
    *["graph", "copy", "waiting_copy", "memset", "memop", "host_func"],
    *["alloc", "free", "lose", "retire", "rush"],
    *["end_stream", "end_thread", "end_event", "use_context"],
]

OPERATIONS = {
    "launch": (OperationKind.LAUNCH, 0),
    "programmatic": (OperationKind.LAUNCH, PROGRAMMATIC),
    "graph": (OperationKind.GRAPH, 0),
    "copy": (OperationKind.COPY, 0),
    "waiting_copy": (OperationKind.COPY, HOST_WAITS),
    "memop": (OperationKind.MEMOP, 0),
    "host_func": (OperationKind.HOST_FUNC, 0),
    "record": (OperationKind.EVENT_RECORD, 0),
    "wait": (OperationKind.EVENT_WAIT, 0),
    "sync_stream": (OperationKind.SYNC_STREAM, 0),
    "sync_event": (OperationKind.SYNC_EVENT, 0),
    "sync_context": (OperationKind.SYNC_CONTEXT, 0),
}


@dataclass(frozen=True)
class Step:
    """An act, and numbers from which it takes what it needs."""

    act: str
    thread: int
    stream: int
    event: int
    accesses: list[Access] | None


def accesses() -> st.SearchStrategy[list[Access] | None]:
    one = st.tuples(st.integers(0, BYTES - 1), st.integers(0, 8), st.booleans())
    inside = one.map(lambda a: (a[0], min(a[1], BYTES - a[0]), a[2]))
    return st.one_of(st.lists(inside, max_size=3), st.lists(inside, max_size=3), st.none())


STEPS = st.builds(
    Step,
    act=st.sampled_from(ACTS),
    thread=st.integers(0, len(THREADS) - 1),
    stream=st.integers(0, CONTEXTS * len(KINDS) - 1),
    event=st.integers(0, 2),
    accesses=accesses(),
)


class World:
    """The graph and the model, which are told the same."""

    def __init__(self) -> None:
        self.dag = Dag()
        self.model = Model()
        for _ in range(CONTEXTS):
            self.dag.add_context()
        self.streams = [self._stream(c, kind) for c in range(CONTEXTS) for kind in KINDS]
        self.threads = [self._thread(context) for context in THREADS]

    def _stream(self, context: int, kind: StreamKind) -> tuple[int, Chain]:
        return self.dag.add_stream(context, kind), self.model.add_chain(context, kind)

    def _thread(self, context: int) -> tuple[int, Chain]:
        return self.dag.add_thread(context), self.model.add_chain(context)

    def do(self, step: Step) -> None:
        if step.act in ("memset", "alloc", "free"):
            self.use(step)
        elif step.act in OPERATIONS:
            kind, flags = OPERATIONS[step.act]
            self.add(kind, step, flags=flags, object=step.event)
        else:
            getattr(self, step.act)(step)

    def add(self, kind: OperationKind, step: Step, **rest: int) -> None:
        has_stream = kind.value <= OperationKind.SYNC_STREAM.value
        number, stream = self.streams[step.stream]
        thread_number, thread = self.threads[step.thread]
        where = {"stream": number} if has_stream else {}
        op = Operation(kind, thread=thread_number, **where, **rest)
        uses = None if kind in SYNCS else step.accesses
        node = self.model.add(
            op, thread, stream if has_stream else None, uses, begin=self.dag.begin
        )
        assert self.dag.add(op, uses) == node

    def use(self, step: Step) -> None:
        address, count, _ = (step.accesses or [(0, 0, False)])[0]
        untold = Step(step.act, step.thread, step.stream, step.event, None)
        kind = OperationKind[step.act.upper()]
        self.add(kind, untold, object=address, bytes=max(count, 1))

    def lose(self, _step: Step) -> None:
        self.dag.lose()
        self.model.lose()

    def retire(self, step: Step) -> None:
        self.dag.retire(self.dag.begin + step.stream)

    def rush(self, step: Step) -> None:
        for _ in range(MANY):
            self.add(OperationKind.LAUNCH, Step("", step.thread, step.stream, 0, []))
        self.dag.retire(self.dag.end - 10)

    def end_stream(self, step: Step) -> None:
        number, chain = self.streams[step.stream]
        self.dag.end_stream(number)
        if chain.kind is not StreamKind.LEGACY:
            self.streams[step.stream] = self._stream(chain.context, chain.kind)

    def end_thread(self, step: Step) -> None:
        number, chain = self.threads[step.thread]
        self.dag.end_thread(number)
        self.threads[step.thread] = self._thread(chain.context)

    def end_event(self, step: Step) -> None:
        self.dag.end_event(step.event)
        self.model.forget_event(step.event)

    def use_context(self, step: Step) -> None:
        number, chain = self.threads[step.thread]
        chain.context = step.event % CONTEXTS
        self.dag.use_context(number, chain.context)


def check_order(world: World, node: int) -> None:
    dag, model = world.dag, world.model
    for other in range(dag.begin, dag.end):
        assert dag.before(other, node) == model.is_before(other, node), (other, node)
    edges = dag.edges(node)
    found = {(other, kind is EdgeKind.OVERLAP) for other, kind in edges}
    assert found == model.edges(node, dag.begin), node
    assert len(found) == len(edges)


def check_data(world: World, node: int) -> None:
    dag, model = world.dag, world.model
    expected = {edge for edge in model.data_edges[node] if edge[0] >= dag.begin}
    edges = dag.data_edges(node)
    assert set(edges) == expected, node
    assert len(edges) == len(set(edges))
    assert bool(dag.node(node).flags & UNRESOLVED) != model.resolved[node]
    for other in range(dag.begin, dag.end):
        assert dag.may_overlap(other, node) == model.may_overlap(other, node) or other == node
        independent = model.is_independent(other, node)
        assert independent in (None, dag.independent(other, node)), (other, node)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=50))
def test_the_graph_is_what_the_model_says(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        world.do(step)

    for node in range(world.dag.begin, world.dag.end):
        check_order(world, node)
        check_data(world, node)


@settings(max_examples=30, deadline=None)
@given(before=st.lists(STEPS, max_size=20), after=st.lists(STEPS, max_size=20))
def test_a_wait_whose_event_may_have_been_lost_says_so(
    before: list[Step], after: list[Step]
) -> None:
    world = World()
    for step in before:
        world.do(step)
    world.lose(Step("lose", 0, 0, 0, None))
    recorded = {step.event for step in after if step.act == "record"}
    for step in after:
        world.do(step)
    for event in {0, 1, 2} - recorded:
        world.add(OperationKind.EVENT_WAIT, Step("wait", 0, 0, event, []), object=event)
        assert world.dag.node(world.dag.end - 1).flags & UNKNOWN_ORDER
