"""What is said to somebody who may not know of other people's jobs (`daemon.privacy`)."""

from __future__ import annotations

import re
from collections.abc import Callable

# `Job.title`: the id, and as Python writes it the name that somebody gave.
_TITLE = re.compile(r"""\bj-([0-9a-f]+)(?: '(?:[^'\\]|\\.)*'| "(?:[^"\\]|\\.)*")?""")
SOMEBODY = "another user's job"
SOMETHING = "a job that has ended"  # whose it was is not known any more


def discreet(text: str, may_know: Callable[[int], bool | None]) -> str:
    """The text without the ids and names of all jobs but these; a job is in it by its title.

    Args:
        text: for one person.
        may_know: whether that person may know of the job with an id; None: nobody knows it.
    """

    def said(found: re.Match[str]) -> str:
        knows = may_know(int(found[1], 16))
        if knows is None:
            return SOMETHING
        return found[0] if knows else SOMEBODY

    return _TITLE.sub(said, text)
