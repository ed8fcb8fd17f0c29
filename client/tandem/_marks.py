"""Marks: what a program may tell about itself. Outside the shim each of them does nothing.

They call functions that the shim, already loaded in this process, exports (shim/tandem_mark.h);
they open no connection and import nothing beyond the standard library.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from functools import cache, wraps
from itertools import count
from numbers import Real
from operator import index
from typing import Any, ParamSpec, Protocol, TypeVar, cast

# enum tandem_mark_kind
STEP, PHASE_BEGIN, PHASE_END, CRITICAL, REQUEST_BEGIN, REQUEST_END = range(1, 7)

_MASK = 2**64 - 1
_NS_PER_MS = 1_000_000
_MOST_OBJECTIVE_MS = 100 * 365 * 86_400_000  # RequestFinder::kMostObjectiveNs

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_PAUSE = "tandem_pause_v1"
_requests = count(1)  # next() on it is atomic


class _Shim(Protocol):
    def tandem_mark_v1(self, kind: int, id_: int, value: int, /) -> int: ...
    def tandem_is_managed_v1(self) -> int: ...
    def tandem_memory_is_wanted_v1(self) -> int: ...
    def tandem_pause_v1(self, ready: int, /) -> int: ...
    def tandem_pause_end_v1(self) -> None: ...


def is_managed() -> bool:
    """Whether this process is attached to a daemon now; False outside the shim."""
    shim = _shim()
    return shim is not None and shim.tandem_is_managed_v1() == 1


def is_loaded() -> bool:
    """Whether this process runs under the shim, attached or not."""
    return _shim() is not None


def memory_is_wanted() -> bool:
    """Whether another job waits for memory of a GPU of this process; False outside the shim."""
    shim = _shim()
    return shim is not None and shim.tandem_memory_is_wanted_v1() == 1


def pause_number(ready: int) -> int:
    """Listen for pauses of the job: return the number of the coming or present one; 0 = none.

    `ready` is the number of the newest pause for which this process is prepared. Without the shim,
    or with one that is older than this function, the result is always 0.
    """
    shim = _shim()
    return shim.tandem_pause_v1(ready) if shim is not None and hasattr(shim, _PAUSE) else 0


def listen_no_more() -> None:
    """Stop listening: from now on the job is held at once."""
    shim = _shim()
    if shim is not None and hasattr(shim, _PAUSE):
        shim.tandem_pause_end_v1()


def step(number: int = 0) -> None:
    """Mark the end of an iteration; `number` is the program's own iteration count.

    Raises:
        TypeError: `number` is not an integer.
    """
    _mark(STEP, index(number))


def phase(name: str) -> AbstractContextManager[None]:
    """Mark a block as one phase, such as "prefill" or "backward".

    with tandem.phase("prefill"): ...

    Raises:
        TypeError: `name` is not a string.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a phase is text, not {name!r}")
    return _phase(fnv1a(name.encode(errors="replace")))


@contextmanager
def _phase(name_hash: int) -> Iterator[None]:
    _mark(PHASE_BEGIN, name_hash)
    try:
        yield
    finally:
        _mark(PHASE_END, name_hash)


def critical(*, max_ms: float) -> AbstractContextManager[None]:
    """Ask to keep the GPU inside the block, for at most `max_ms` milliseconds.

    This is a wish, which counts where jobs take turns: a job that has the turn, and work, keeps it
    past the end of its quantum until the block ends, for `max_ms`, or for what the daemon grants in
    a turn (`scheduler.critical_ms`), whichever comes first. Jobs of a more urgent class do not wait
    for it. Blocks may be nested, and several threads may enter them; while several are open, the
    one with the latest end counts.

    Raises:
        TypeError: `max_ms` is not a number.
        ValueError: `max_ms` is not positive.
    """
    return _critical(_positive(max_ms, "max_ms"))


@contextmanager
def _critical(max_ms: float) -> Iterator[None]:
    _mark(CRITICAL, 0, int(max(1, min(max_ms * _NS_PER_MS, _MASK))))  # 0 would end the block
    try:
        yield
    finally:
        _mark(CRITICAL, 0)


def slo(
    *, p99_ms: float
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate the function that handles one request: plain, async or a generator.

    The request lasts while the function runs; for a generator, from its first step to its end.
    Meanwhile a process of class latency counts as busy, even while the GPU does nothing for it, so
    that best-effort work of others stays away. `p99_ms`, in milliseconds, is the objective that the
    code was written for. Latencies are reported against it where the job itself has no objective;
    the daemon schedules only by that of `tandem run --slo`. More than 100 years, such as
    `math.inf`, means no objective.

        @tandem.slo(p99_ms=50)
        def handle(request): ...

    Raises:
        TypeError: `p99_ms` is not a number.
        ValueError: `p99_ms` is not positive.
    """
    objective_ns = _objective_ns(_positive(p99_ms, "p99_ms"))

    def decorate(handle: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction

        ways: tuple[tuple[Callable[[Any], bool], Callable[[Any, int], Any]], ...] = (
            (iscoroutinefunction, _marked_async),
            (isgeneratorfunction, _marked_generator),
            (isasyncgenfunction, _marked_async_generator),
        )
        for is_such, marked_as in ways:
            if is_such(handle):
                return cast("Callable[_Arguments, _Result]", marked_as(handle, objective_ns))

        @wraps(handle)
        def marked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with _request(objective_ns):
                return handle(*args, **kwargs)

        return marked

    return decorate


def _positive(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):  # also accepts numpy's numbers
        raise TypeError(f"{what} is a number of milliseconds, not {value!r}")
    if not value > 0:
        raise ValueError(f"{what} must be positive, not {value}")
    return value


def _objective_ns(p99_ms: float) -> int:
    """The objective as the daemon takes it; 0 = none."""
    return int(max(1, p99_ms * _NS_PER_MS)) if p99_ms <= _MOST_OBJECTIVE_MS else 0


def fnv1a(text: bytes) -> int:
    """The 64-bit FNV-1a hash that identifies a phase in the shim."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & _MASK
    return value


def _marked_async(
    handle: Callable[_Arguments, Coroutine[Any, Any, _Result]],
    objective_ns: int,
) -> Callable[_Arguments, Coroutine[Any, Any, _Result]]:
    @wraps(handle)
    async def marked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with _request(objective_ns):
            return await handle(*args, **kwargs)

    return marked


def _marked_generator(
    handle: Callable[_Arguments, Generator[Any, Any, _Result]],
    objective_ns: int,
) -> Callable[_Arguments, Generator[Any, Any, _Result]]:
    @wraps(handle)
    def marked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Generator[Any, Any, _Result]:
        with _request(objective_ns):
            return (yield from handle(*args, **kwargs))

    return marked


def _marked_async_generator(
    handle: Callable[_Arguments, AsyncGenerator[_Result, None]],
    objective_ns: int,
) -> Callable[_Arguments, AsyncGenerator[_Result, None]]:
    @wraps(handle)
    async def marked(
        *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> AsyncGenerator[_Result, None]:
        with _request(objective_ns):
            async with aclosing(handle(*args, **kwargs)) as parts:
                with suppress(StopAsyncIteration):
                    part = await anext(parts)
                    while True:  # `yield from`, which async generators lack
                        try:
                            sent = yield part
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            part = await parts.athrow(error)
                        else:
                            part = await parts.asend(sent)

    return marked


@contextmanager
def _request(objective_ns: int) -> Iterator[None]:
    number = next(_requests)
    _mark(REQUEST_BEGIN, number, objective_ns)
    try:
        yield
    finally:
        _mark(REQUEST_END, number)


def _mark(kind: int, id_: int, value: int = 0) -> None:
    shim = _shim()
    if shim is not None:
        shim.tandem_mark_v1(kind, id_ & _MASK, min(value, _MASK))


@cache
def _shim() -> _Shim | None:
    try:
        import ctypes
    except ImportError:  # a Python built without libffi
        return None

    # PyDLL keeps the GIL: a mark never blocks, and releasing the GIL would cost more.
    process = ctypes.PyDLL(None)
    try:
        mark, managed = process.tandem_mark_v1, process.tandem_is_managed_v1
        wanted = process.tandem_memory_is_wanted_v1
    except AttributeError:
        return None
    mark.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
    managed.argtypes = wanted.argtypes = []
    if hasattr(process, _PAUSE):  # an older shim lacks it
        process.tandem_pause_v1.argtypes = [ctypes.c_uint32]
        process.tandem_pause_v1.restype = ctypes.c_uint32
        process.tandem_pause_end_v1.argtypes = []
        process.tandem_pause_end_v1.restype = None
    return cast("_Shim", process)
