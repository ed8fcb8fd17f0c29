"""Whether the limits of this process leave it what a daemon needs; said before it begins."""

from __future__ import annotations

import resource
import threading

from tandem.errors import StateError

LEAST_DESCRIPTORS = 64  # half of them are its own before anybody comes
LEAST_THREADS = (
    32  # two thirds of them it has before anybody comes; gRPC would abort for want of one
)


def raise_descriptor_limit() -> None:
    """As many descriptors as the hard limit allows: five a process, for thousands of them.

    Raises:
        StateError: so few that gRPC would end the daemon by a signal, and no word of ours.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS:
        raise StateError(
            f"the limit of open files is {hard} and tandemd needs {LEAST_DESCRIPTORS}, and five "
            "more for each process of a job; raise it (ulimit -Hn, or LimitNOFILE= of the unit)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_threads() -> None:
    """Have them all at once: what is left of the limits nobody tells, others share them.

    Raises:
        StateError: there are too few.
    """
    let_go = threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(LEAST_THREADS):
            thread = threading.Thread(target=let_go.wait, name="room", daemon=True)
            thread.start()
            threads.append(thread)
    except (RuntimeError, MemoryError):
        raise StateError(
            f"tandemd needs {LEAST_THREADS} threads and can start {len(threads)}; raise what "
            f"holds it: {_bounds_of_threads()}"
        ) from None
    finally:
        let_go.set()
        for thread in threads:
            thread.join()


def _bounds_of_threads() -> str:
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    bytes_, _ = resource.getrlimit(resource.RLIMIT_AS)
    known = []
    if processes != resource.RLIM_INFINITY:
        known.append(f"ulimit -u, which is {processes} for all threads of the user")
    if bytes_ != resource.RLIM_INFINITY:
        known.append(f"ulimit -v, which is {bytes_ >> 10} KiB")
    return ", ".join([*known, "or TasksMax= of the unit (pids.max of the cgroup)"])
