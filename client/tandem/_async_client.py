"""`Client` for asyncio: the same methods, as coroutines.

Each call runs the method of `Client` on a thread, so nothing is implemented twice. gRPC has its own
asyncio API, but using it would duplicate the code that logs in, reconnects after a fork and maps
errors, for calls that take a millisecond.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from tandem._client import Client
from tandem._results import Job, JobEvent, TraceEvent
from tandem.errors import TandemError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Event = TypeVar("_Event")


def _awaited(
    method: Callable[Concatenate[Client, _Arguments], _Result],
) -> Callable[Concatenate["AsyncClient", _Arguments], Coroutine[Any, Any, _Result]]:
    async def call(
        self: "AsyncClient", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        return await asyncio.to_thread(method, self.client, *args, **kwargs)

    update_wrapper(call, method)
    return call


class AsyncClient:
    """A connection to the daemon of this machine for asyncio; use it as an async context manager.

    It has the methods of `Client`, with the same arguments, results and errors, as coroutines. A
    cancelled call may have been carried out. An instance belongs to one event loop.

        async with tandem.AsyncClient() as client:
            for job in await client.jobs():
                print(job.name, job.state)
            async for event in await client.watch():
                print(event.kind, event.job.name)
    """

    def __init__(self, *, directory: str | None = None) -> None:
        """Use the daemon whose runtime directory is `directory`, by default the usual one."""
        self.client = Client(directory=directory)  # for callers that can block a thread
        self._directory = directory
        self._watches: set[Watch[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Return the token, end all watches and close the connection; idempotent."""
        for watch in tuple(self._watches):
            await watch.aclose()
        await asyncio.to_thread(self.client.close)

    jobs = _awaited(Client.jobs)
    job = _awaited(Client.job)
    set = _awaited(Client.set)
    pause = _awaited(Client.pause)
    resume = _awaited(Client.resume)
    cancel = _awaited(Client.cancel)
    group = _awaited(Client.group)
    pause_group = _awaited(Client.pause_group)
    resume_group = _awaited(Client.resume_group)
    cancel_group = _awaited(Client.cancel_group)
    set_group = _awaited(Client.set_group)
    explain = _awaited(Client.explain)
    windows = _awaited(Client.windows)
    gpus = _awaited(Client.gpus)
    drain_gpu = _awaited(Client.drain_gpu)
    cut_gpu = _awaited(Client.cut_gpu)
    memory_history = _awaited(Client.memory_history)
    partitions = _awaited(Client.partitions)
    plans = _awaited(Client.plans)
    policy = _awaited(Client.policy)
    set_policy = _awaited(Client.set_policy)
    status = _awaited(Client.status)
    metrics = _awaited(Client.metrics)
    history = _awaited(Client.history)
    events = _awaited(Client.events)

    async def wait(
        self, *names: str, until: str = "ended", deadline_s: float | None = None
    ) -> list[Job]:
        """Like `Client.wait`; cancelling the task ends the wait."""
        thread = _Thread(self._directory)
        try:
            return await thread.do(
                partial(thread.client.wait, *names, until=until, deadline_s=deadline_s)
            )
        finally:
            thread.end()

    async def watch(self, *, deadline_s: float | None = None) -> "Watch[JobEvent]":
        """Every change from the moment this returns: `async for event in await ...`.

        Raises the errors of `Client.watch`. Ends when the watch or the client is closed by
        `aclose`.
        """
        return await self._begin(lambda client: client.watch(deadline_s=deadline_s))

    async def trace(self, *, seconds: float) -> "Watch[TraceEvent]":
        """Like `Client.trace`, from the moment this returns: `async for event in await ...`."""
        return await self._begin(lambda client: client.trace(seconds=seconds))

    async def _begin(self, call: Callable[[Client], Iterator[_Event]]) -> "Watch[_Event]":
        thread = _Thread(self._directory)
        try:
            events = await thread.do(partial(call, thread.client))
        except BaseException:
            thread.end()
            raise
        watch = Watch(thread, events, self._watches)
        self._watches.add(watch)
        return watch


class Watch(AsyncIterator[_Event]):
    """An iterator over events, made by `AsyncClient.watch` and `trace`. For one task at a time."""

    def __init__(
        self, thread: "_Thread", events: Iterator[_Event], open_watches: "set[Watch[Any]]"
    ) -> None:
        self._thread = thread
        self._events = events
        self._open_watches = open_watches
        self._next: asyncio.Future[_Event | None] | None = None
        self._is_over = False

    async def __anext__(self) -> _Event:
        """Return the next event. Cancelling it, for example by a timeout, loses no event."""
        if self._is_over:
            raise StopAsyncIteration
        if self._next is None:
            following: Callable[[], _Event | None] = partial(next, self._events, None)
            self._next = self._thread.do(following)
        try:
            event = await asyncio.shield(self._next)
        except TandemError:
            if not self._is_over:
                await self.aclose()
                raise
            event = None
        self._next = None
        if event is None:
            await self.aclose()
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """End the iteration; idempotent."""
        if self._is_over:
            return
        self._is_over = True
        self._open_watches.discard(self)
        if self._next is not None:  # it fails now, and maybe nobody awaits it
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._thread.end()


class _Thread:
    """Calls that may block for ever: on their own connection, on threads that nobody joins."""

    def __init__(self, directory: str | None) -> None:
        self.client = Client(directory=directory)

    def do(self, call: Callable[[], _Result]) -> asyncio.Future[_Result]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()

        def settle(set_it: Callable[[], None]) -> None:
            if not done.done():
                set_it()

        def run() -> None:
            try:
                set_it = partial(done.set_result, call())
            except BaseException as error:
                set_it = partial(done.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed: nobody awaits the result
                loop.call_soon_threadsafe(settle, set_it)

        threading.Thread(target=run, name="tandem-client", daemon=True).start()
        return done

    def end(self) -> None:
        # Closing fails the blocked call with an error. It runs on a thread because a login in
        # progress holds the lock.
        threading.Thread(target=self.client.close, name="tandem-client-close", daemon=True).start()
