"""`tandem.job`: what a program's own job may use while a block runs, and what happens to it."""

from __future__ import annotations

import os
import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING

from tandem import _marks
from tandem._pressure import MemoryWatch, on_memory_pressure
from tandem.errors import NotFoundError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from tandem._client import Client
    from tandem._results import Job

PERIOD_S = 0.1
UNMANAGED = (
    "tandem.job changes nothing: this process runs without Tandem, or has not used the GPU yet and "
    "was not started by `tandem run`"
)


class PauseWatch:
    """Listens for pauses of the job, on a thread of its own, until closed. One a process."""

    def __init__(self, *, period_s: float = PERIOD_S) -> None:
        """Look every `period_s` seconds once there is something to call."""
        self._period_s = period_s
        self._lock = threading.Lock()
        self._before: list[Callable[[], object]] = []
        self._after: list[Callable[[], object]] = []
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def call(
        self, *, before: Callable[[], object] | None = None, after: Callable[[], object] | None
    ) -> None:
        """Call these, behind those that are called already."""
        with self._lock:
            self._before += [before] if before is not None else []
            self._after += [after] if after is not None else []
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tandem-pause", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Listen no more; a call that is under way ends first, unless it is what closes."""
        self._closed.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        ready, is_told = 0, False
        while not self._closed.is_set():
            number = _marks.pause_number(ready)
            if number and number != ready:
                self._call(self._before)
                ready, is_told = number, True
                continue  # the daemon hears at once that it need not wait
            if not number and is_told:
                is_told = False
                self._call(self._after)
            self._closed.wait(self._period_s)
        _marks.listen_no_more()

    def _call(self, callbacks: list[Callable[[], object]]) -> None:
        with self._lock:
            wanted = list(callbacks)
        for callback in wanted:
            try:
                callback()
            except Exception as error:  # the others are to be called all the same
                told = (type(error), error, error.__traceback__, self._thread)
                threading.excepthook(threading.ExceptHookArgs(told))


class job:  # noqa: N801 - used as a word, like the context managers of torch.profiler
    """What this program's own job may use inside the block; behind it, what it might before.

        with tandem.job(priority="batch", memory="20GiB") as j:
            j.on_pause(save_checkpoint)
            j.on_resume(warm_up)
            j.on_memory_pressure(torch.cuda.empty_cache)
            train()

    Keys and values are those of `Client.set` and `tandem set`; without any the block changes
    nothing and is there for its callbacks. These are called on threads of the client, one at a time
    each kind, in the order in which they were given; an exception in one is told as in any thread.
    In a process that no daemon knows as part of a job, or that runs without the shim, a
    warning says so once, and all else does nothing. Not to be entered twice.
    """

    def __init__(  # noqa: PLR0913 - as Client.set
        self,
        *,
        priority: str | None = None,
        memory: str | None = None,
        memory_min: str | None = None,
        wait_memory: str | None = None,
        idle_release: str | None = None,
        persistent: str | None = None,
        ephemeral: str | None = None,
        sm: str | None = None,
        slo: str | None = None,
        preemptible: bool | None = None,
    ) -> None:
        """Remember what is wanted; nothing is asked of the daemon yet."""
        wanted = {
            "priority": priority,
            "memory": memory,
            "memory_min": memory_min,
            "wait_memory": wait_memory,
            "idle_release": idle_release,
            "persistent": persistent,
            "ephemeral": ephemeral,
            "sm": sm,
            "slo": slo,
            "preemptible": preemptible,
        }
        self._wanted: dict[str, Any] = {k: said for k, said in wanted.items() if said is not None}
        self._before: dict[str, Any] = {}
        self._name: str | None = None
        self._pauses = PauseWatch()
        self._watches: list[MemoryWatch] = []
        self._is_entered = False

    def __enter__(self) -> Self:
        """Ask the daemon for it.

        Raises:
            TypeError: a value is no text, such as a number of bytes.
            UsageError: a value is not understood.
            AccessError: the job may not have that.
            TandemError: as `Client.set`.
        """
        if self._is_entered:
            raise StateError("a tandem.job is entered once: make another one")
        self._is_entered = True
        try:
            self._name = self._ask()
        except NotFoundError:
            warnings.warn(UNMANAGED, stacklevel=2)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take it back, and call nothing any more."""
        self._pauses.close()
        for watch in self._watches:
            watch.close()
        if self._name is not None and self._before:
            from tandem._client import Client

            with Client() as client:
                client.set(self._name, **self._before)

    @property
    def name(self) -> str | None:
        """As `tandem ps` has it, "j-7f3a"; None: it is no job."""
        return self._name

    def stats(self) -> Job | None:
        """How the job fares now; None: it is no job.

        Raises:
            TandemError: as `Client.job`.
        """
        if self._name is None:
            return None
        from tandem._client import Client

        with Client() as client:
            return client.job(self._name)

    def on_pause(self, callback: Callable[[], object]) -> None:
        """Call it when somebody pauses the job, before it is held.

        It may use the GPU, as for a checkpoint. The job is held when it and all others have
        returned, in every process of the job that listens, or when the grace of the pause is over
        (`tandem pause --grace`, 30 s).
        """
        self._pauses.call(before=_callable(callback), after=None)

    def on_resume(self, callback: Callable[[], object]) -> None:
        """Call it when a pause is over that the program was told of."""
        self._pauses.call(after=_callable(callback))

    def on_memory_pressure(self, callback: Callable[[], object]) -> None:
        """Call it while others wait for device memory, as `tandem.on_memory_pressure` does."""
        self._watches.append(on_memory_pressure(callback))

    def _ask(self) -> str:
        """The name of the job, once it has what is wanted."""
        if not _marks.is_loaded():
            raise NotFoundError(UNMANAGED)
        from tandem._client import Client

        with Client() as client:
            name = own_job(client)
            if self._wanted:
                before = client.job(name)
                client.set(name, **self._wanted)
                self._before = {key: _now(before, key) for key in self._wanted}
            return name


def own_job(client: Client) -> str:
    """As `tandem run` said it to who started this process, or as the daemon knows the process.

    Raises:
        NotFoundError: it is part of no job.
    """
    if said := os.environ.get("TANDEM_JOB_ID"):
        return said
    own = os.getpid()
    for found in client.jobs():
        if any(process.pid == own for process in found.processes):
            return found.name
    raise NotFoundError("this process is part of no job of a daemon")


def _callable(callback: Callable[[], object]) -> Callable[[], object]:
    if not callable(callback):
        raise TypeError(f"the callback is to be called, and {callback!r} cannot be")
    return callback


def _now(found: Job, key: str) -> str | bool:
    """What the job has, as `Client.set` takes it."""
    if key == "priority":
        return found.priority
    if key == "preemptible":
        return found.preemptible is not False
    if key == "sm":
        share = "none" if found.sm_percent is None else f"{found.sm_percent}%"
        return share if found.sm_count is None else f"{found.sm_count}"
    number, write = {
        "memory": (found.memory_quota_bytes, "{}"),
        "memory_min": (found.memory_min_bytes, "{}"),
        "persistent": (found.persistent_bytes, "{}"),
        "ephemeral": (found.ephemeral_bytes, "{}"),
        "wait_memory": (found.wait_memory_ns, "{}ns"),
        "idle_release": (found.idle_release_ns, "{}ns"),
        "slo": (found.slo_p99_ns, "p99={}ns"),
    }[key]
    if number is None:
        return "default" if key == "idle_release" else "none"
    return write.format(number)
