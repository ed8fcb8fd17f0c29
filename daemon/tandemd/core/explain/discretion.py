"""What is said to somebody who may not know of other people's jobs (`daemon.privacy`)."""

from __future__ import annotations

import re
from collections.abc import Collection

# `Job.title`: the id, and as Python writes it the name that somebody gave.
_TITLE = re.compile(r"""\b(j-[0-9a-f]+)(?: '(?:[^'\\]|\\.)*'| "(?:[^"\\]|\\.)*")?""")
SOMEBODY = "another user's job"


def discreet(text: str, visible: Collection[str]) -> str:
    """The text without the ids and names of all jobs but these; a job is in it by its title."""
    return _TITLE.sub(lambda found: found[0] if found[1] in visible else SOMEBODY, text)
