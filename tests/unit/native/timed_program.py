"""A program for the analyses: a context, a thread, two non-blocking streams; times in ns."""

from tandem._native import Dag, Operation, OperationKind, StreamKind, analyse

HOST_WAITS, ESTIMATED, UNRESOLVED, PROGRAMMATIC = 1, 2, 4, 16


class TimedProgram:
    """Adds operations; each method returns the node."""

    def __init__(self):
        self.dag = Dag()
        context = self.dag.add_context()
        self.thread = self.dag.add_thread(context)
        self.one = self.dag.add_stream(context, StreamKind.NON_BLOCKING)
        self.other = self.dag.add_stream(context, StreamKind.NON_BLOCKING)

    def add(self, kind, stream=None, *, at=0, takes=0, uses=None, **rest):
        """`uses`: (address, bytes, read-only) for each buffer; None: unknown."""
        where = {} if stream is None else {"stream": stream}
        return self.dag.add(
            Operation(
                OperationKind[kind],
                thread=self.thread,
                submitted_ns=at,
                duration_ns=takes,
                **where,
                **rest,
            ),
            uses,
        )

    def launch(self, stream, **rest):
        return self.add("LAUNCH", stream, **rest)

    def copy(self, stream, **rest):
        return self.add("COPY", stream, **rest)

    def record(self, stream, event, **rest):
        return self.add("EVENT_RECORD", stream, object=event, **rest)

    def wait(self, stream, event, **rest):
        return self.add("EVENT_WAIT", stream, object=event, **rest)

    def sync(self, stream, **rest):
        return self.add("SYNC_STREAM", stream, **rest)

    def analyse(self, first=None, last=None, **rest):
        first = self.dag.begin if first is None else first
        return analyse(self.dag, first, self.dag.end if last is None else last, **rest)
