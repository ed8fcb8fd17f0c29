"""What a program asks cuGetProcAddress for, held against the table of the shim's calls."""

from __future__ import annotations

from collections.abc import Iterable


def unlisted(asked: Iterable[str], table: str) -> list[str]:
    """Those of `asked` that name no revision of the table, sorted.

    A runtime asks for each function by the version in which the revision that it was compiled for
    came. Where the table has another version for that, the shim may take one revision for another;
    where it lacks the name, calls go past the shim. Versions newer than all of the table are left
    out: the shim knows that it cannot know them.

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
