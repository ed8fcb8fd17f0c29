"""Frequent or slow callers keep nobody else waiting."""

import asyncio
import socket
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from types import SimpleNamespace

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tandem._wire import tandem_pb2 as pb
from tandem._wire import tandem_pb2_grpc as pb_grpc
from tandem.errors import CapacityError, NotFoundError
from tandemd.edges import error_info, rpc, rpc_calls
from tandemd.edges.rpc import RpcServer
from tandemd.places import Places

SOON_S = 20
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # RFC 9113, 3.4
GET = "/tandem.v1.PolicyService/GetPolicy"
EXHAUSTED, UNAUTHENTICATED = (
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
)


class Desk:
    """Keeps uid 7's calls of `set_policy` waiting while `lets` is cleared."""

    def __init__(self):
        self.lets = threading.Event()
        self.lets.set()
        self.entered = threading.Semaphore(0)
        self.inside = 0
        self.records_no_more = threading.Event()

    def policy(self):
        return "fair"

    def policies(self):
        return {"fair": "", "fifo": ""}

    def set_policy(self, uid, name):
        if len(name) > len("fifo"):
            raise NotFoundError(f"no policy is named '{name}'")
        if uid == 7:
            self.inside += 1
            self.entered.release()
            assert self.lets.wait(SOON_S)
        return name

    @contextmanager
    def trace(self, uid):
        try:
            yield list
        finally:
            self.records_no_more.set()


class Client:
    """One connection, whose token is the uid's number."""

    def __init__(self, path, uid):
        own = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"unix:{path}", options=own)
        self.metadata = () if uid is None else (("authorization", f"Bearer {uid}"),)
        self._stub = pb_grpc.PolicyServiceStub(self.channel)
        self._forever = threading.Event()

    def get(self):
        return self._stub.GetPolicy(
            pb.GetPolicyRequest(), metadata=self.metadata, timeout=SOON_S
        ).name

    def set(self, name="fifo"):
        return self._stub.SetPolicy.future(
            pb.SetPolicyRequest(name=name), metadata=self.metadata, timeout=SOON_S
        )

    def trace(self):
        stub = pb_grpc.TraceServiceStub(self.channel)
        return stub.RecordTrace(pb.RecordTraceRequest(), metadata=self.metadata)

    def begin(self):
        """Begins a call and never sends its request."""

        def never():
            self._forever.wait()
            return
            yield

        return self.channel.stream_unary(GET).future(never(), metadata=self.metadata)

    def close(self):
        self._forever.set()
        self.channel.close()


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def ready():
    """Set, since the daemon is ready."""
    found = threading.Event()
    found.set()
    return found


@pytest.fixture
def connect(tmp_path, desk, ready):
    path = tmp_path / "rpc.sock"

    def peer_for(token):
        return SimpleNamespace(uid=int(token))

    with ExitStack() as open_ones:
        server = RpcServer(path, desk=desk, peer_for=peer_for, is_ready=ready.is_set)
        server.start()
        open_ones.callback(server.stop)

        def connect(uid):
            client = Client(path, uid)
            open_ones.callback(client.close)
            return client

        yield connect
        desk.lets.set()


@contextmanager
def serving(path):
    """Return a function that connects to a server and, if `greets`, sends the HTTP/2 greeting."""
    server = RpcServer(path, desk=Desk(), peer_for=lambda _: None, is_ready=lambda: True)
    server.start()
    with ExitStack() as open_ones:
        open_ones.callback(server.stop)

        def connect(*, greets):
            found = open_ones.enter_context(closing(socket.socket(socket.AF_UNIX)))
            found.settimeout(SOON_S)
            found.connect(str(path))
            if greets:
                with suppress(BrokenPipeError):  # the server hung up already
                    found.sendall(GREETING)
            return found

        yield connect


def is_hung_up_on(connection):
    try:
        while connection.recv(4096):  # the server's own greeting
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(("limit", "greets"), [("GREETING_MS", False), ("IDLE_MS", True)])
def test_who_connects_and_asks_nothing_is_hung_up_on(tmp_path, monkeypatch, limit, greets):
    monkeypatch.setattr(rpc, limit, 50)
    with serving(tmp_path / "rpc.sock") as connect:
        assert is_hung_up_on(connect(greets=greets))


def test_calls_that_are_half_said_keep_nobody_waiting(connect):
    for client in [connect(7), connect(7), connect(None)]:
        calls = [client.begin() for _ in range(2 * rpc_calls.WORKERS)]
    refused = {call.exception(SOON_S).code() for call in calls}
    other = connect(8)
    health = health_pb2_grpc.HealthStub(other.channel)

    answer = health.Check(health_pb2.HealthCheckRequest(), timeout=SOON_S)

    assert other.get() == "fair"
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert refused == {UNAUTHENTICATED}  # although their requests never arrived


def test_health_follows_whether_the_daemon_is_ready_for_who_asks_and_who_watches(connect, ready):
    request, states = health_pb2.HealthCheckRequest(), health_pb2.HealthCheckResponse
    health = health_pb2_grpc.HealthStub(connect(None).channel)
    watch = health.Watch(request, timeout=SOON_S)
    assert next(watch).status == states.SERVING

    ready.clear()
    assert health.Check(request, timeout=SOON_S).status == states.NOT_SERVING
    assert next(watch).status == states.NOT_SERVING

    ready.set()
    assert next(watch).status == states.SERVING
    assert health.Check(request, timeout=SOON_S).status == states.SERVING


def test_who_watches_a_daemon_that_ends_hears_of_it(tmp_path):
    path = tmp_path / "rpc.sock"
    server = RpcServer(path, desk=Desk(), peer_for=lambda _: None, is_ready=lambda: True)
    server.start()
    client = Client(path, None)
    watch = health_pb2_grpc.HealthStub(client.channel).Watch(
        health_pb2.HealthCheckRequest(), timeout=SOON_S
    )
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING

    server.stop()

    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    client.close()


def test_half_a_call_has_its_turn_for_so_long_only(connect, monkeypatch):
    monkeypatch.setattr(rpc_calls, "REQUEST_S", 2)  # complete calls must arrive in that time, too
    client = connect(7)
    calls = [client.begin() for _ in range(rpc_calls.TURNS_PER_UID)]

    assert client.get() == "fair"
    assert {call.exception(SOON_S).code() for call in calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}


def test_a_request_that_does_not_come_is_waited_for_so_long(connect, monkeypatch):
    monkeypatch.setattr(rpc_calls, "REQUEST_S", 0.01)

    error = connect(7).begin().exception(SOON_S)

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.details() == "no request came within 0.01 s"


def test_a_call_that_ends_without_a_request_is_refused(connect):
    client = connect(7)

    call = client.channel.stream_unary(GET).future(iter(()), metadata=client.metadata)

    assert call.exception(SOON_S).code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_uid_has_so_many_calls_under_way_and_others_have_theirs(connect, desk, monkeypatch):
    monkeypatch.setattr(rpc_calls, "MAX_CALLS_PER_UID", 8)
    desk.lets.clear()
    client = connect(7)
    calls = [client.set() for _ in range(rpc_calls.TURNS_PER_UID)]  # each occupies a thread
    for _ in calls:
        assert desk.entered.acquire(timeout=SOON_S)

    with pytest.raises(grpc.RpcError) as refused:
        client.get()
    assert connect(8).get() == "fair"
    desk.lets.set()
    answers = {call.result(SOON_S).name for call in calls}

    assert refused.value.code() is EXHAUSTED
    assert "uid 7 has 8 calls under way" in refused.value.details()
    assert (answers, client.get()) == ({"fifo"}, "fair")


def test_a_uid_has_so_many_threads_whether_it_waits_for_its_calls_or_not(connect, desk):
    desk.lets.clear()
    client, other = connect(7), connect(8)
    left = [client.set() for _ in range(rpc_calls.TURNS_PER_UID)]
    for _ in left:
        assert desk.entered.acquire(timeout=SOON_S)
    for call in left:
        call.cancel()

    calls = [client.set() for _ in range(2 * rpc_calls.WORKERS)]
    assert (other.get(), desk.inside) == ("fair", len(left))
    desk.lets.set()

    assert {call.result(SOON_S).name for call in calls} == {"fifo"}


def test_a_request_is_so_long_at_most_and_an_answer_says_no_long_text_again(connect):
    client = connect(7)

    ends = [client.set("x" * size).exception(SOON_S) for size in (1 << 21, 1 << 19)]

    assert [end.code() for end in ends] == [EXHAUSTED, grpc.StatusCode.NOT_FOUND]
    assert ends[1].details() == f"no policy is named '{'x' * (1 << 19)}'"[: rpc_calls.MAX_TEXT]


def test_a_recording_ends_when_its_caller_leaves_also_between_two_looks(connect, desk, monkeypatch):
    monkeypatch.setattr(rpc, "TRACE_LOOK_S", 10 * SOON_S)
    trace = connect(7).trace()
    assert next(trace) == pb.TraceChunk()  # the recording has begun

    trace.cancel()

    assert desk.records_no_more.wait(SOON_S)


def test_what_the_caller_has_not_taken_is_given_up_when_it_leaves():
    ends = []

    async def never_taken(_message):
        writes.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("write")

    async def serve():
        call = rpc_calls.Call(SimpleNamespace(write=never_taken))
        work = asyncio.to_thread(call.send, (message for message in "ab"))
        task = asyncio.create_task(work)
        await asyncio.wait_for(writes.wait(), SOON_S)
        call.leave()
        with pytest.raises(rpc_calls.Aborted, match="the caller has hung up"):
            await asyncio.wait_for(task, SOON_S)
        return [*ends]

    writes = asyncio.Event()

    assert asyncio.run(serve()) == ["write"]


@contextmanager
def refused(text):
    with pytest.raises(CapacityError, match=text):
        yield


def test_places_are_limited_in_all_and_for_each_uid_and_come_back():
    places = Places(3, 2, "watch")
    with ExitStack() as taken:
        for uid in (7, 7, 8):
            taken.enter_context(places.take(uid))
        with refused("than 2 clients of uid 7 may watch at once"), places.take(7):
            pass
        with refused("than 3 clients may watch at once"), places.take(8):
            pass

    with places.take(7), places.take(7), places.take(9):
        pass


def test_a_status_carries_its_reason_as_grpcs_own_libraries_read_it(connect):
    failure = connect(7).set("none such").exception(SOON_S)

    status = status_pb2.Status.FromString(dict(failure.trailing_metadata())[error_info.KEY])
    info = error_details_pb2.ErrorInfo()
    (detail,) = status.details
    assert detail.Unpack(info)
    assert (info.reason, info.domain) == ("NOT_FOUND", "tandem")
    assert (status.code, status.message) == (failure.code().value[0], failure.details())


@pytest.mark.parametrize("letter", ["x", "\U0001f600"])
def test_a_long_text_leaves_room_for_its_reason(connect, letter):
    failure = connect(7).set(letter * 2000).exception(SOON_S)

    assert failure.code() is grpc.StatusCode.NOT_FOUND
    assert len(failure.details().encode()) <= rpc_calls.MAX_TEXT
    assert error_info.KEY in dict(failure.trailing_metadata())
