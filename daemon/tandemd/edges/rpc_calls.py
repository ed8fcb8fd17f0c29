"""Admission of RPC calls: whose they are, how many run at once, and in which threads.

Anybody on the machine may connect, send half of a call, and wait. Such a call costs a few objects
in the event loop, and no thread before its request is complete. Each uid has a few turns, which
limit how many of its requests are read, and so held in memory, and how many threads it occupies.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from tandem.errors import reason_of_status
from tandemd.desk import MAX_TRACES, MAX_WATCHERS, MAX_WINDOWS
from tandemd.edges.error_info import details_of
from tandemd.edges.peers import Peer

if TYPE_CHECKING:  # at run time grpc's classes are not generic
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
    Metadata = Iterable[tuple[str, str | bytes]]

WORKERS = 16  # threads for calls with one answer
TURNS_PER_UID = 4  # calls whose request is being read or answered; others wait in line
SPARE_STREAMS = 8  # threads for streams that the desk refuses, which end soon
MAX_CALLS_PER_UID = 256  # running or waiting, over all its connections
REQUEST_S = 5.0  # for the whole request to arrive, once it is the call's turn
MAX_TEXT = 1024  # bytes of a status text: some repeat parts of the request
HEALTH = "/grpc.health.v1.Health/"
NO_TOKEN = "no valid token; connect to the login socket and keep that connection open"

PeerFor = Callable[[str], Peer | None]


class Aborted(Exception):  # noqa: N818 - no error of ours: how a call ends
    """Ends a call with a status."""

    def __init__(self, code: grpc.StatusCode, text: str, reason: str = "") -> None:
        """`reason` is as in tandem.errors; empty: that of the status."""
        super().__init__(text)
        # Limited in bytes: it is sent twice, once with up to three bytes for each, and clients
        # accept only 8 KiB.
        self.text = text.encode(errors="replace")[:MAX_TEXT].decode(errors="ignore")
        self.code, self.reason = code, reason or reason_of_status(code.name)

    async def end(self, context: Context) -> NoReturn:
        """Send the status to the caller; in the event loop."""
        details = details_of(self.code, self.text, self.reason)
        await context.abort(self.code, self.text, details)


class Call:
    """What a servicer's thread sees of its call: the needed part of grpc.ServicerContext."""

    def __init__(self, context: Context) -> None:
        """Call in the event loop."""
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._gone = Future[None]()
        self._pending: Future[None] | None = None  # what its thread waits for

    def invocation_metadata(self) -> Metadata | None:
        """Return the metadata that came with the call."""
        return self._context.invocation_metadata()

    def is_active(self) -> bool:
        """Tell whether the caller is still there."""
        return not self._gone.done()

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Call `callback` once the caller has left, or at once if it has; returns True."""
        self._gone.add_done_callback(lambda _gone: callback())
        return True

    def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        """End the call, as generated servicers do it.

        Raises:
            Aborted: always.
        """
        raise Aborted(code, text)

    def send_initial_metadata(self, metadata: tuple[()]) -> None:
        """Tell the caller that the call is under way."""
        self._wait(self._context.send_initial_metadata, metadata)

    def send(self, messages: Generator[object, None, None]) -> None:
        """Send all messages, as fast as the caller takes them."""
        with closing(messages):
            for message in messages:
                self._wait(self._context.write, message)

    def leave(self) -> None:
        """Note that the caller has left."""
        self._gone.set_result(None)
        if self._pending is not None:
            self._pending.cancel()

    def _wait(self, do: Callable[[Any], Any], what: object) -> None:
        if self.is_active():
            self._pending = asyncio.run_coroutine_threadsafe(do(what), self._loop)
            if not self.is_active():  # `leave` may have run before anything was pending
                self._pending.cancel()
            with suppress(CancelledError):
                return self._pending.result()  # may take long, but ends when the caller leaves
        raise Aborted(grpc.StatusCode.CANCELLED, "the caller has hung up")


class Door(grpc.aio.ServerInterceptor):
    """Rejects calls without a valid token, and limits how many calls a uid has at once.

    Only for the thread of the event loop.
    """

    def __init__(self, peer_for: PeerFor) -> None:
        self._peer_for = peer_for
        self._calls: Counter[int] = Counter()
        self._turns: dict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(TURNS_PER_UID)
        )
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="rpc")
        streams = MAX_WATCHERS + MAX_WINDOWS + MAX_TRACES + SPARE_STREAMS
        self._streams = ThreadPoolExecutor(streams, thread_name_prefix="rpc stream")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Let the call pass, or answer it before its request arrives."""
        details = handler_call_details
        if details.method.startswith(HEALTH):
            return await continuation(details)
        peer = peer_of(details.invocation_metadata, self._peer_for)
        if peer is None:
            return grpc.stream_unary_rpc_method_handler(_refuse)
        handler = await continuation(details)
        return None if handler is None else self._taking(handler, peer.uid)

    def _taking(self, servicer: Any, uid: int) -> Handler:  # noqa: ANN401 - fields that may be None
        """Wrap a servicer as one for a request stream, so that no thread waits for a request."""

        async def answer(requests: AsyncIterator[object], context: Context) -> object:
            async with self._place(uid, context) as call:
                await self._turns[uid].acquire()
                with ExitStack() as turn:
                    turn.callback(self._turns[uid].release)
                    request = await _request_of(requests)
                    work = self._workers.submit(_end_of, servicer.unary_unary, request, call)
                    self._stay(uid, work, turn.pop_all())
                return _said(await asyncio.wrap_future(work))

        async def stream(requests: AsyncIterator[object], context: Context) -> None:
            async with self._place(uid, context) as call:
                async with self._turns[uid]:
                    request = await _request_of(requests)
                messages = servicer.unary_stream(request, call)
                work = self._streams.submit(_end_of, call.send, messages)  # the desk limits these
                _said(await asyncio.wrap_future(work))

        is_stream = servicer.response_streaming
        made: Any = grpc.stream_stream_rpc_method_handler
        made = made if is_stream else grpc.stream_unary_rpc_method_handler
        formats = (servicer.request_deserializer, servicer.response_serializer)
        handler: Handler = made(stream if is_stream else answer, *formats)
        return handler

    @asynccontextmanager
    async def _place(self, uid: int, context: Context) -> AsyncIterator[Call]:
        if self._calls[uid] >= MAX_CALLS_PER_UID:
            text = f"uid {uid} has {MAX_CALLS_PER_UID} calls under way already; try again later"
            await Aborted(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "TOO_MANY_CALLS").end(context)
        call = Call(context)
        self._calls[uid] += 1
        try:
            yield call
        except Aborted as end:
            await end.end(context)
        finally:
            call.leave()
            self._leave(uid)

    def _stay(self, uid: int, work: Future[object], turn: ExitStack) -> None:
        """Hold the turn until the call's thread is done, even if the caller leaves earlier."""
        loop = asyncio.get_running_loop()
        self._calls[uid] += 1
        turn.callback(self._leave, uid)

        def tell(_work: Future[object]) -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(turn.close)

        work.add_done_callback(tell)

    def _leave(self, uid: int) -> None:
        self._calls[uid] -= 1
        if not self._calls[uid]:
            del self._calls[uid]
            self._turns.pop(uid, None)


def _end_of(do: Callable[..., object], *arguments: object) -> object:
    """Return the result or a fresh Aborted: a raised one would keep its request until a GC run."""
    try:
        return do(*arguments)
    except Aborted as end:
        return Aborted(end.code, end.text, end.reason)


def _said(end: object) -> object:
    if isinstance(end, Aborted):
        raise end
    return end


async def _request_of(requests: AsyncIterator[object]) -> object:
    try:
        return await asyncio.wait_for(anext(requests), REQUEST_S)
    except StopAsyncIteration:
        raise Aborted(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request") from None
    except TimeoutError:
        text = f"no request came within {REQUEST_S:g} s"
        raise Aborted(grpc.StatusCode.DEADLINE_EXCEEDED, text) from None


async def _refuse(_requests: AsyncIterator[object], context: Context) -> None:
    await Aborted(grpc.StatusCode.UNAUTHENTICATED, NO_TOKEN, "NO_TOKEN").end(context)


def peer_of(metadata: Metadata | None, peer_for: PeerFor) -> Peer | None:
    """Return who holds the token that came with a call; None: it is missing or void."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            return peer_for(value.removeprefix("Bearer "))
    return None
