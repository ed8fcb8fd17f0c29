"""The questions to the helper, and its answers: one JSON message each way.

A question that is not exactly one of these is refused. Nothing in it is a path, a word of a command
or the value of a variable; what it names is looked up on the machine before anything is done.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tandem import errors
from tandem.errors import TandemError
from tandemd.core.space.layouts import MOST_INSTANCES, Cut
from tandemd.edges.checkpoint_driver import Call

MOST_DEVICES = 64  # in a machine
MOST_PROBLEM = 3000  # characters; the rest must fit into the message as well
# \Z, not $, which also matches before a trailing newline.
Uuid = Annotated[
    str, msgspec.Meta(pattern=r"\AGPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", max_length=40)
]
Profile = Annotated[
    str, msgspec.Meta(pattern=r"\A[0-9]{1,2}g\.[0-9]{1,4}gb([+-][a-z0-9.]{1,16})?\Z")
]


class Question(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="verb"
):
    """Common part of all questions: a verb."""

    @property
    def verb(self) -> str:
        """Return its name on the wire."""
        return str(self.__struct_config__.tag)


class Hello(Question, frozen=True, tag="hello"):
    """Asks whether the helper is there, and for its version."""


class CutGpu(Question, frozen=True, kw_only=True, tag="cut-gpu"):
    """Cut an idle GPU by MIG."""

    gpu: Uuid
    # Empty: turn MIG off.
    profiles: Annotated[tuple[Profile, ...], msgspec.Meta(max_length=MOST_INSTANCES)]


class StartMps(Question, frozen=True, kw_only=True, tag="start-mps"):
    """Start MPS for these GPUs, or for all; a running one will do."""

    gpus: Annotated[tuple[Uuid, ...], msgspec.Meta(max_length=MOST_DEVICES)]


class TrimMps(Question, frozen=True, tag="trim-mps"):
    """End the servers of MPS that have no clients."""


class EndMps(Question, frozen=True, tag="end-mps"):
    """End MPS, unless it has clients."""


class Checkpoint(Question, frozen=True, kw_only=True, tag="checkpoint"):
    """Make a checkpoint call of the driver for the process whose pidfd is attached."""

    call: Call


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result. A daemon ignores fields that it does not know."""

    problem: str = ""  # why it was not done; empty: it was
    kind: str = ""  # of the problem: the name of an error of `tandem.errors`
    reason: str = ""
    version: str = ""  # of the helper
    process: int = 0  # the pid for which it was done
    cut: Cut | None = None
    pipes: str = ""  # pipe directory of MPS
    state: int = 0  # of the process, if it was asked for: CUprocessState


Questions = Hello | CutGpu | Checkpoint | StartMps | TrimMps | EndMps
_QUESTION: msgspec.json.Decoder[Questions] = msgspec.json.Decoder(Questions)
_ANSWER = msgspec.json.Decoder(Answer)
_ERRORS = {row.error.__name__: row.error for row in errors.ERRORS}


def read_question(message: bytes) -> Questions:
    """Decode a question.

    Raises:
        UsageError: it is no valid question; the text says what is wrong with it.
    """
    try:
        return _QUESTION.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.UsageError(f"the message is not a valid question: {error}") from error


def read_answer(message: bytes) -> Answer:
    """Decode an answer.

    Raises:
        TandemError: the question was refused or failed, with the class that the helper names.
    """
    try:
        answer = _ANSWER.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.BugError(f"tandemd-helper sent an invalid answer: {error}") from error
    if answer.problem:
        kind = _ERRORS.get(answer.kind, errors.BugError)
        raise kind(answer.problem, reason=answer.reason)
    return answer


def refusal(error: TandemError) -> Answer:
    """Return the answer that stands for this error."""
    problem = str(error)[:MOST_PROBLEM]
    return Answer(problem=problem, kind=type(error).__name__, reason=error.reason)


def encode(message: Question | Answer) -> bytes:
    """Encode a message for sending."""
    return msgspec.json.encode(message)
