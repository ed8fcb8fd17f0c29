"""What may be asked of the helper, and what it answers: one message of JSON each way.

A question that is not exactly one of these is refused. Nothing in it is a path, a word of a command
or the value of a variable; what it names is looked for on the machine before anything is done.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tandem import errors
from tandem.errors import TandemError
from tandemd.core.space.layouts import MOST_INSTANCES, Cut
from tandemd.edges.checkpoint_driver import Call

MOST_DEVICES = 64  # of a machine
MOST_PROBLEM = 3000  # characters; a message has to hold the rest as well
# Not $, before which a line may end.
Uuid = Annotated[
    str, msgspec.Meta(pattern=r"\AGPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", max_length=40)
]
Profile = Annotated[
    str, msgspec.Meta(pattern=r"\A[0-9]{1,2}g\.[0-9]{1,4}gb([+-][a-z0-9.]{1,16})?\Z")
]


class Question(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="verb"
):
    """What all have: a verb."""

    @property
    def verb(self) -> str:
        """Its name on the wire."""
        return str(self.__struct_config__.tag)


class Hello(Question, frozen=True, tag="hello"):
    """Whether it is there, and of which version."""


class CutGpu(Question, frozen=True, kw_only=True, tag="cut-gpu"):
    """Cut a GPU by MIG, in which nobody computes."""

    gpu: Uuid
    profiles: Annotated[tuple[Profile, ...], msgspec.Meta(max_length=MOST_INSTANCES)]  # none: off


class StartMps(Question, frozen=True, kw_only=True, tag="start-mps"):
    """Have MPS for these GPUs, or for all; one that runs will do."""

    gpus: Annotated[tuple[Uuid, ...], msgspec.Meta(max_length=MOST_DEVICES)]


class TrimMps(Question, frozen=True, tag="trim-mps"):
    """End its servers that have no clients."""


class EndMps(Question, frozen=True, tag="end-mps"):
    """End it, unless it has clients."""


class Checkpoint(Question, frozen=True, kw_only=True, tag="checkpoint"):
    """Make a checkpoint call of the driver for the process whose pidfd comes along."""

    call: Call


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of it. A daemon passes over fields that it does not know."""

    problem: str = ""  # why it was not done; empty: it was
    kind: str = ""  # of the problem: the name of an error of `tandem.errors`
    reason: str = ""
    version: str = ""  # of the helper
    process: int = 0  # the pid of the one that it was done for
    cut: Cut | None = None
    pipes: str = ""  # where MPS has its pipe
    state: int = 0  # of the process, where that was asked: CUprocessState


Questions = Hello | CutGpu | Checkpoint | StartMps | TrimMps | EndMps
_QUESTION: msgspec.json.Decoder[Questions] = msgspec.json.Decoder(Questions)
_ANSWER = msgspec.json.Decoder(Answer)
_ERRORS = {row.error.__name__: row.error for row in errors.ERRORS}


def read_question(message: bytes) -> Questions:
    """What a message asks.

    Raises:
        UsageError: it is no question; the text says what of it is wrong.
    """
    try:
        return _QUESTION.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.UsageError(f"the message is no question: {error}") from error


def read_answer(message: bytes) -> Answer:
    """What a message answers.

    Raises:
        TandemError: what was asked was refused or failed, by the class that the helper says.
    """
    try:
        answer = _ANSWER.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.BugError(f"tandemd-helper answers what is no answer: {error}") from error
    if answer.problem:
        kind = _ERRORS.get(answer.kind, errors.BugError)
        raise kind(answer.problem, reason=answer.reason)
    return answer


def refusal(error: TandemError) -> Answer:
    """The answer that is this error."""
    problem = str(error)[:MOST_PROBLEM]
    return Answer(problem=problem, kind=type(error).__name__, reason=error.reason)


def encode(message: Question | Answer) -> bytes:
    """As it is sent."""
    return msgspec.json.encode(message)
