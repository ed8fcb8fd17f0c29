"""Checks at startup that this process's resource limits leave the daemon enough."""

from __future__ import annotations

import resource
import threading

from tandem.errors import StateError

LEAST_DESCRIPTORS = 64  # the daemon itself takes half of them before anybody connects
LEAST_THREADS = (
    32  # the daemon itself takes two thirds before anybody connects; gRPC aborts if it lacks one
)


def raise_descriptor_limit() -> None:
    """Raise the descriptor limit to the hard limit: five per process, for thousands of them.

    Raises:
        StateError: the limit is so low that gRPC would end the daemon by a signal, without an error
            message.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS:
        raise StateError(
            f"the limit on open files is {hard}, but tandemd needs {LEAST_DESCRIPTORS}, and five "
            "more per process of a job; raise it (ulimit -Hn, or LimitNOFILE= in the unit)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_threads() -> None:
    """Start that many threads at once as a test: what is left of shared limits cannot be queried.

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
            f"tandemd needs {LEAST_THREADS} threads, but can start only {len(threads)}; raise the "
            f"limit in its way: {_bounds_of_threads()}"
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
    return ", ".join([*known, "or TasksMax= in the unit (pids.max of the cgroup)"])
