"""What `tandem doctor` says of tandemd-helper: whether it exists, answers, or is not needed."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem import _helper
from tandem.errors import TandemError

ANSWER_S = 2.0
_HELLO = b'{"verb":"hello"}'
WITHOUT = "no mps for other users, no MIG and no --checkpoint of other users' jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The state of the helper."""

    text: str
    is_wrong: bool = False
    remedy: str = ""


def verdict(attach: Path, environment: Mapping[str, str]) -> Verdict | None:
    """The verdict for the daemon at this attach socket; None: neither daemon nor helper exists.

    Blocks until the helper answers, for at most `ANSWER_S`.
    """
    path = _helper.socket_of(environment)
    daemon, served = _helper.owner_of(attach), _helper.owner_of(path)
    if daemon == 0:
        return Verdict(text="not needed: the daemon runs as root")
    if served is None:
        return None if daemon is None else _none(daemon)
    if daemon not in (None, served):
        return Verdict(
            text=f"{path} is for uid {served}, but the daemon runs as uid {daemon}",
            is_wrong=True,
            remedy="correct SocketUser= in tandemd-helper.socket and --user in "
            "tandemd-helper.service",
        )
    if os.geteuid() not in (0, served):
        return Verdict(text=f"{path}, for uid {served}; only root can see whether it answers")
    return _asked(path)


def _none(daemon: int) -> Verdict:
    text = f"there is none: {WITHOUT} with a daemon of uid {daemon}"
    return Verdict(text=text, remedy=f"if you want that: {_helper.ENABLE}")


def _asked(path: Path) -> Verdict:
    try:
        answer = json.loads(_helper.exchange(path, _HELLO, timeout_s=ANSWER_S))
        return Verdict(text=f"version {answer['version']} answers on {path}")
    except (TandemError, ValueError, TypeError, KeyError) as error:
        return Verdict(
            text=str(error),
            is_wrong=True,
            remedy="see journalctl -u tandemd-helper, and restart tandemd-helper.socket",
        )
