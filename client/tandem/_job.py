"""`tandem.job`: settings and callbacks for the program's own job while a block runs."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Unpack

from tandem import _marks
from tandem._changes import Changes, said_of
from tandem._pauses import WATCH, Callback, Listener
from tandem._pressure import MemoryWatch, check_callback, on_memory_pressure
from tandem.errors import NotFoundError, StateError, TandemError, UnavailableError

if TYPE_CHECKING:
    from typing import Any, Self

    from tandem._client import Client
    from tandem._results import Job

UNMANAGED = (
    "tandem.job changes nothing: this process runs without Tandem, or has not used the GPU yet and "
    "was not started by `tandem run`"
)


class job:  # noqa: N801 - used as a word, like the context managers of torch.profiler
    """Settings for this program's own job inside the block; afterwards the old ones apply again.

        with tandem.job(priority="batch", memory="20GiB") as j:
            j.on_pause(save_checkpoint)
            j.on_resume(warm_up)
            j.on_memory_pressure(torch.cuda.empty_cache)
            train()

    Keys and values are those of `Client.set` and `tandem set`; without any, the block changes no
    settings and only serves its callbacks. Callbacks run on threads of the client, those of one
    kind one at a time in the order in which they were registered; an exception in one is reported
    as in any thread. In a process that is not part of a job of any daemon, that runs without the
    shim, or whose daemon is away, entering the block warns of that and has no other effect. An
    instance can be entered only once.
    """

    def __init__(self, **wanted: Unpack[Changes]) -> None:
        """Store the wanted settings; the daemon is asked on entering the block.

        Raises:
            TypeError: a keyword that `Client.set` does not have.
        """
        self._wanted = said_of(wanted, "job")
        self._before: dict[str, Any] = {}  # the settings before the block, and
        self._given: dict[str, Any] = {}  # those that the daemon set for it
        self._name: str | None = None
        self._listener = Listener()
        self._pid = 0
        self._watches: list[MemoryWatch] = []
        self._is_entered = False

    def __enter__(self) -> Self:
        """Ask the daemon for the settings.

        Raises:
            TypeError: a value is not a string, such as a number of bytes.
            UsageError: a value is not understood.
            AccessError: the job may not have that.
            TandemError: as raised by `Client.set`.
        """
        if self._is_entered:
            raise StateError("a tandem.job can be entered only once; create another one")
        self._is_entered = True
        self._pid = os.getpid()
        try:
            self._name = self._ask()
        except NotFoundError:
            warnings.warn(UNMANAGED, stacklevel=2)
        except UnavailableError as error:
            warnings.warn(f"tandem.job changes nothing: {error}", stacklevel=2)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the settings that nobody has changed since, and stop all callbacks.

        If the daemon refuses, that is only a warning, so as not to hide how the block ended.
        """
        if self._pid != os.getpid():
            return  # in a forked child: the block belongs to the parent
        WATCH.remove(self._listener)
        for watch in self._watches:
            watch.close()
        try:
            self._give_back()
        except TandemError as refused:
            warnings.warn(
                f"tandem.job changes nothing at the end of the block: {refused}", stacklevel=2
            )

    def _give_back(self) -> None:
        if self._name is None or not self._before:
            return
        from tandem._client import Client

        with Client() as client:
            now = client.job(self._name)
            own = {key for key, given in self._given.items() if _now(now, key) == given}
            if own:
                client.set(self._name, **{key: self._before[key] for key in own})

    @property
    def name(self) -> str | None:
        """The job's name as in `tandem ps`, "j-7f3a"; None if the process is not part of a job."""
        return self._name

    def stats(self) -> Job | None:
        """The job's current state and figures; None if the process is not part of a job.

        Raises:
            TandemError: as raised by `Client.job`.
        """
        if self._name is None:
            return None
        from tandem._client import Client

        with Client() as client:
            return client.job(self._name)

    def on_pause(self, callback: Callback) -> None:
        """Register a callback that runs when somebody pauses the job, before the job is held.

        The callback may use the GPU, for example to write a checkpoint. The job is held when all
        callbacks in all listening processes of the job have returned, or when the grace period of
        the pause is over (`tandem pause --grace`, 30 s).
        """
        self._listen(self._listener.before, callback)

    def on_resume(self, callback: Callback) -> None:
        """Register a callback that runs when a pause that the program was told of is over.

        It runs before the program is told of another pause. So when pauses come faster than
        callbacks return, the program is not told of those in between, and reacquires what
        `on_pause` released before it has to release it again.
        """
        self._listen(self._listener.after, callback)

    def on_memory_pressure(self, callback: Callback) -> None:
        """Register a callback for memory pressure, as `tandem.on_memory_pressure` does."""
        self._watches.append(on_memory_pressure(callback))

    def _listen(self, callbacks: list[Callback], callback: Callback) -> None:
        is_new = not (self._listener.before or self._listener.after)
        check_callback(callback)
        callbacks.append(callback)
        if is_new:
            WATCH.add(self._listener)

    def _ask(self) -> str:
        """Apply the wanted settings and return the job's name."""
        if not _marks.is_loaded():
            raise NotFoundError(UNMANAGED)
        from tandem._client import Client

        with Client() as client:
            name = own_job(client)
            if self._wanted:
                before = client.job(name)
                after = client.set(name, **self._wanted)
                self._before = {key: _now(before, key) for key in self._wanted}
                self._given = {key: _now(after, key) for key in self._wanted}
                for line in after.warnings:
                    warnings.warn(f"tandem.job: {line}", stacklevel=3)
            return name


def own_job(client: Client) -> str:
    """The name of this process's job: from `tandem run`'s environment, or else from the daemon.

    Raises:
        NotFoundError: the process is part of no job.
    """
    if said := os.environ.get("TANDEM_JOB_ID"):
        return said
    own = os.getpid()
    for found in client.jobs():
        if any(process.pid == own for process in found.processes):
            return found.name
    raise NotFoundError("this process is not part of a daemon's job")


def _now(found: Job, key: str) -> str | bool:
    """The job's current value of a setting, in the form that `Client.set` takes."""
    if key == "priority":
        return found.priority
    if key == "preemptible":
        return "default" if found.preemptible is None else found.preemptible
    if key == "sm":
        share = "none" if found.sm_percent is None else f"{found.sm_percent}%"
        return share if found.sm_count is None else f"{found.sm_count}"
    if key == "memory" and found.memory_quota_bytes is None and found.memory_percent is not None:
        return f"{found.memory_percent}%"
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
