"""The settings of a running job that can be changed: keywords of `Client.set` and `tandem.job`."""

from collections.abc import Mapping
from typing import Any, TypedDict


class Changes(TypedDict, total=False):
    """Values are those of `tandem run`; "none" removes a limit, None leaves it unchanged."""

    priority: str | None  # latency, normal or batch
    memory: str | None  # "20GiB" or "40%" of each GPU
    memory_min: str | None
    wait_memory: str | None
    idle_release: str | None  # or "never" and "default"
    persistent: str | None
    ephemeral: str | None
    sm: str | None
    slo: str | None  # "p99=50ms"
    preemptible: bool | str | None  # or "default": as the class has it


def said_of(changes: Mapping[str, object], function: str) -> dict[str, Any]:
    """The changes that are not None.

    Raises:
        TypeError: `function` has no such keyword.
    """
    known = Changes.__annotations__
    for word in changes.keys() - known.keys():
        raise TypeError(
            f"{function}() got an unexpected keyword argument {word!r}; it has {', '.join(known)}"
        )
    return {word: value for word, value in changes.items() if value is not None}
