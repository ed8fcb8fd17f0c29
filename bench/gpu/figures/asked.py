"""Compares what a program asks cuGetProcAddress for with the table of the shim's calls."""

from __future__ import annotations

from collections.abc import Iterable


def unlisted(asked: Iterable[str], table: str) -> list[str]:
    """List the look-ups in `asked` that match no revision in the table, sorted.

    A runtime asks for each function with the version that introduced the revision it was compiled
    for. If the table has another version for it, the shim may confuse two revisions; if the table
    lacks the name, calls bypass the shim. Versions newer than any in the table are left out, since
    the shim knows that it cannot know them.

    Args:
        asked: "name version flags", as facts/lookups.cpp writes them.
        table: lines "base exported since per_thread", as facts/agreement.cpp reads them.
    """
    listed = {(base, int(since)) for base, _, since, _ in map(str.split, table.splitlines())}
    newest = max(since for _, since in listed)
    found = []
    for look_up in sorted(asked):
        name, version, _ = look_up.rsplit(" ", 2)
        if int(version) <= newest and (name, int(version)) not in listed:
            found.append(look_up)
    return found
