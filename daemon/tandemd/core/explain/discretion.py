"""Hides other people's jobs in texts for users who may not know of them (`daemon.privacy`)."""

from __future__ import annotations

import re
from collections.abc import Callable

# `Job.title`: the id, then the job's own name as a Python string literal.
_TITLE = re.compile(r"""\bj-([0-9a-f]+)(?: '(?:[^'\\]|\\.)*'| "(?:[^"\\]|\\.)*")?""")
SOMEBODY = "another user's job"
SOMETHING = "a job that has ended"  # its owner is no longer known


def discreet(text: str, may_know: Callable[[int], bool | None]) -> str:
    """Replace the titles of jobs that the reader may not know of; a text names jobs by title.

    Args:
        text: a text for one person.
        may_know: whether that person may know of the job with this id; None: the id is unknown.
    """

    def said(found: re.Match[str]) -> str:
        knows = may_know(int(found[1], 16))
        if knows is None:
            return SOMETHING
        return found[0] if knows else SOMEBODY

    return _TITLE.sub(said, text)
