"""Schedule, paths and slack against a plain model that knows the order of any two operations."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tandem._native import Dag, EdgeKind, Operation, OperationKind, StreamKind, analyse

GPU = {"LAUNCH", "COPY"}
WAITS = {"SYNC_STREAM", "SYNC_EVENT", "SYNC_CONTEXT"}
KINDS = ["LAUNCH", "LAUNCH", "PROGRAMMATIC", "COPY", "EVENT_RECORD", "EVENT_WAIT", *sorted(WAITS)]
HOST_WAITS, PROGRAMMATIC = 1, 16

STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 3),  # stream
        st.integers(0, 1),  # thread
        st.integers(0, 2),  # event
        st.integers(0, 30),  # ns since the previous call
        st.integers(0, 60),  # duration
        st.booleans(),  # the host waits
    ),
    min_size=1,
    max_size=25,
)


def program(steps, *, timed=GPU):
    dag = Dag()
    context = dag.add_context()
    kinds = [
        StreamKind.NON_BLOCKING,
        StreamKind.NON_BLOCKING,
        StreamKind.BLOCKING,
        StreamKind.LEGACY,
    ]
    streams = [dag.add_stream(context, kind) for kind in kinds]
    threads = [dag.add_thread(context) for _ in range(2)]
    now = [0, 0]
    for kind, stream, thread, event, since, duration, waits in steps:
        now[thread] += since
        flags = HOST_WAITS if waits and kind == "COPY" else 0
        if kind == "PROGRAMMATIC":
            kind, flags = "LAUNCH", PROGRAMMATIC
        of_stream = kind in GPU or kind in {"EVENT_RECORD", "EVENT_WAIT", "SYNC_STREAM"}
        dag.add(
            Operation(
                OperationKind[kind],
                thread=threads[thread],
                object=event,
                submitted_ns=now[thread],
                duration_ns=duration if kind in timed else 0,
                flags=flags,
                **({"stream": streams[stream]} if of_stream else {}),
            )
        )
    return dag


class Model:
    """The definition: an operation begins when everything before it has ended.

    What may overlap a kernel is assumed to begin when that kernel has ended. Only for the longest
    chain it begins when the kernel begins, and ends no earlier than it.
    """

    def __init__(self, dag):
        self.ops = [dag.node(n) for n in range(dag.end)]
        self.before = [[p for p in range(n) if dag.before(p, n)] for n in range(dag.end)]
        self.beside = [
            [p for p, kind in dag.edges(n) if kind is EdgeKind.OVERLAP] for n in range(dag.end)
        ]
        self.ready, self.ends, self.host = self.run(lambda op, wait: op.submitted_ns, {})

    def is_wait(self, op):
        return op.kind.name in WAITS or op.flags & HOST_WAITS

    def run(self, handed, delays):
        """Return when each was ready to run and ended, and the thread's last wait before it."""
        ready, ends, waits, last = [], [], [], {}
        for n, op in enumerate(self.ops):
            wait = last.get(op.thread)
            begin = max(
                [
                    handed(op, wait) if wait is None else handed(op, (n, wait, ends[wait])),
                    *(ends[p] for p in self.before[n] + self.beside[n]),
                ]
            )
            ready.append(begin + delays.get(n, 0))
            ends.append(ready[n] + op.duration_ns)
            waits.append(wait)
            if self.is_wait(op):
                last[op.thread] = n
        return ready, ends, waits

    def length_with(self, node, delay_ns):
        """Return the end of everything if this node begins `delay_ns` later."""

        def handed(op, wait):
            if wait is None:
                return op.submitted_ns
            _, before, end = wait
            return end + max(0, op.submitted_ns - self.ends[before])

        return max(self.run(handed, {node: delay_ns})[1])

    def longest_on_gpu(self):
        starts, ends = [], []
        for n, op in enumerate(self.ops):
            begun = [starts[p] for p in self.beside[n]]
            starts.append(max([*(ends[p] for p in self.before[n]), *begun], default=0))
            ends.append(max(starts[n] + op.duration_ns, *(ends[p] for p in self.beside[n]), 0))
        return max(ends)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_each_operation_begins_when_all_before_it_has_ended(steps):
    dag = program(steps)
    model = Model(dag)

    found = analyse(dag, 0, dag.end)

    assert found.ends_ns == model.ends
    begin = [
        op.submitted_ns if op.kind.name in WAITS else model.ready[n]
        for n, op in enumerate(model.ops)
    ]
    assert found.starts_ns == begin
    assert found.gpu_critical_ns == model.longest_on_gpu()


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_slack_is_what_a_delay_may_be_and_no_more(steps):
    dag = program(steps)
    model = Model(dag)
    end = max(model.ends)

    slack = analyse(dag, 0, dag.end).slack_ns

    assert [model.length_with(n, s) for n, s in enumerate(slack)] == [end] * len(slack)
    assert [model.length_with(n, s + 1) for n, s in enumerate(slack)] == [end + 1] * len(slack)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_the_critical_path_accounts_for_the_whole_length_and_has_no_slack(steps):
    dag = program(steps)

    found = analyse(dag, 0, dag.end)

    parts = found.critical_parts
    total = parts.gpu_ns + parts.host_ns + parts.held_ns + parts.earlier_ns + parts.other_ns
    assert total == found.critical_ns == max(found.ends_ns) - min(found.starts_ns)
    assert {found.slack_ns[n] for n in found.critical_path} == {0}
    assert found.gpu_critical_ns <= found.critical_ns


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans())
def test_measured_waits_are_accounted_for_whether_or_not_the_work_has_durations(steps, is_timed):
    dag = program(steps, timed=GPU | WAITS if is_timed else WAITS)

    found = analyse(dag, 0, dag.end, held=[(20, 40), (30, 70), (100, 105)])

    parts = found.critical_parts
    total = parts.gpu_ns + parts.host_ns + parts.held_ns + parts.earlier_ns + parts.other_ns
    assert total == found.critical_ns == max(found.ends_ns) - min(found.starts_ns)
    assert found.critical_path == sorted(set(found.critical_path))
