"""A small job that adds operations to a graph."""

from tandem._native import Dag, Operation, OperationKind, StreamKind


class Program:
    """A context with a stream of each kind and one thread; adds operations in sequence."""

    def __init__(self, **limits):
        self.dag = Dag(**limits)
        self.context = self.dag.add_context()
        self.thread = self.dag.add_thread(self.context)
        self.legacy = self.stream(StreamKind.LEGACY)
        self.one = self.stream(StreamKind.NON_BLOCKING)
        self.other = self.stream(StreamKind.NON_BLOCKING)
        self.blocking = self.stream(StreamKind.BLOCKING)

    def stream(self, kind):
        return self.dag.add_stream(self.context, kind)

    def add(self, kind, stream=None, accesses=None, **rest):
        where = {} if stream is None else {"stream": stream}
        return self.dag.add(Operation(kind, thread=self.thread, **where, **rest), accesses)

    def launch(self, stream, **rest):
        return self.add(OperationKind.LAUNCH, stream, **rest)
