"""All errors that Tandem raises on purpose, with their gRPC statuses and exit codes.

    TandemError
      UsageError        the request itself is wrong; repeating it fails again
      NotFoundError     no such job, GPU or policy
      StateError        not possible in the present state; change something first
      CapacityError     no room now, or never on this GPU
      AccessError       the caller lacks the right; somebody else may do it
      UnavailableError  no daemon answers; retrying is safe
      DeadlineError     the daemon did not answer in time; the request may have been carried out
      BugError          Tandem broke its own rules

TypeError and ValueError of Python itself mean a programming mistake in the caller.
"""

import errno
from typing import NamedTuple

#: errno of a write that failed for lack of room: a CapacityError, not a wrong file name.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class TandemError(Exception):
    """Base class of all; the text is for people: first the cause, then the remedy."""

    def __init__(self, *args: object, reason: str = "") -> None:
        """`reason` is one of REASONS; if empty, the one of the class applies."""
        super().__init__(*args)
        self._reason = reason

    @property
    def reason(self) -> str:
        """What went wrong, as a word for programs: `CLASS_CEILING`. Stable, unlike the text."""
        return self._reason or _row(self).reason


class UsageError(TandemError):
    """The request is wrong in itself: an unknown option, a size like `12XB`.

    Not raised for a job that does not exist (NotFoundError) or a limit (CapacityError).
    """


class NotFoundError(TandemError):
    """The named object does not exist, or the name fits several.

    Not raised for a job that has ended recently: the daemon still knows those.
    """


class StateError(TandemError):
    """The request makes sense, but not in the present state, such as resuming an exited job.

    Not raised when waiting would help; that is CapacityError.
    """


class CapacityError(TandemError):
    """There is no room: memory, processes, a quota, or a disk.

    Not raised inside a job: there the CUDA call returns `CUDA_ERROR_OUT_OF_MEMORY`.
    """


class AccessError(TandemError):
    """The caller's uid may not do this.

    Not raised for things the caller may not see; those are left out or empty.
    """


class UnavailableError(TandemError):
    """No daemon answers. Nothing was done, so retrying is safe.

    Not raised by `tandem run`, which then runs the command unshared unless told otherwise.
    """


class DeadlineError(TandemError):
    """The answer took longer than the deadline; whether the request was carried out is unknown.

    Not raised for an absent daemon (UnavailableError).
    """


class BugError(TandemError):
    """Tandem broke a rule of its own: this is a bug in tandem, please report it.

    Never caused by wrong input alone.
    """


#: `domain` of google.rpc.ErrorInfo: the namespace of our reasons.
DOMAIN = "tandem"


class ErrorRow(NamedTuple):  # a dataclass would double the time of `import tandem`
    """What one error becomes outside Python."""

    error: type[TandemError]
    grpc_status: str  # name in grpc.StatusCode; this module never imports grpc
    exit_code: int
    reason: str  # when nothing more specific is given


# One row for each error; no error, status, exit code or reason appears twice.
ERRORS = (
    ErrorRow(UsageError, "INVALID_ARGUMENT", 2, "INVALID_REQUEST"),
    ErrorRow(NotFoundError, "NOT_FOUND", 3, "NOT_FOUND"),
    ErrorRow(StateError, "FAILED_PRECONDITION", 4, "WRONG_STATE"),
    ErrorRow(CapacityError, "RESOURCE_EXHAUSTED", 5, "NO_ROOM"),
    ErrorRow(AccessError, "PERMISSION_DENIED", 6, "NOT_ALLOWED"),
    ErrorRow(UnavailableError, "UNAVAILABLE", 7, "NO_ANSWER"),
    ErrorRow(DeadlineError, "DEADLINE_EXCEEDED", 8, "TOO_LATE"),
    ErrorRow(BugError, "INTERNAL", 70, "BUG"),
)

# More specific reasons, and the class of each. A reason is never removed or renamed.
REASONS: dict[str, type[TandemError]] = {
    "AMBIGUOUS_NAME": NotFoundError,
    "JOB_ENDED": StateError,
    "CHANGED_MEANWHILE": StateError,
    "GPU_IN_USE": StateError,
    "NO_HISTORY": StateError,
    "OLDER_DAEMON": StateError,
    "TOO_MANY_CALLS": CapacityError,
    "TOO_MANY_CLIENTS": CapacityError,
    "CLASS_CEILING": AccessError,
    "QUOTA_EXCEEDED": AccessError,
    "NOT_OWNER": AccessError,
    "ADMINS_ONLY": AccessError,
    "NO_TOKEN": AccessError,
}

# Statuses that no Tandem server sends on purpose still need a meaning at the client.
_OTHER_STATUSES: dict[str, type[TandemError]] = {
    "UNAUTHENTICATED": AccessError,
    "ABORTED": StateError,
    "ALREADY_EXISTS": StateError,
    "OUT_OF_RANGE": UsageError,
    "CANCELLED": UnavailableError,
}


def reason_of_status(status: str) -> str:
    """The reason that follows from the name of a `grpc.StatusCode` alone."""
    error = from_grpc_status(status)
    return next(row.reason for row in ERRORS if row.error is error)


def exit_code(error: TandemError) -> int:
    """The exit code of a command that fails with `error`."""
    return _row(error).exit_code


def grpc_status(error: TandemError) -> str:
    """The name of the `grpc.StatusCode` that carries `error`."""
    return _row(error).grpc_status


def from_grpc_status(status: str) -> type[TandemError]:
    """The error class for a `grpc.StatusCode` name; BugError for one that no server should send."""
    for row in ERRORS:
        if row.grpc_status == status:
            return row.error
    return _OTHER_STATUSES.get(status, BugError)


def _row(error: TandemError) -> ErrorRow:
    for row in ERRORS:
        if isinstance(error, row.error):
            return row
    return ERRORS[-1]  # nothing raises a bare TandemError
