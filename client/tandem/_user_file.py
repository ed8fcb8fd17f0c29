"""The user's own file, ~/.config/tandem/config.toml: defaults for what a job asks for.

It covers only requests; limits are the daemon's. A flag overrides a variable, which overrides this
file, which overrides the built-in defaults. Values are checked as text, like those of variables.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tandem.errors import UsageError

TABLE = "run"
# The options of `tandem run` that have a variable, except the name, which is for a single job.
KEYS = (
    *("priority", "memory", "memory_min", "persistent", "ephemeral", "wait_memory", "sm"),
    *("isolation", "slo", "preemptible", "swappable", "idle_release", "checkpoint"),
    *("return_memory", "group", "require", "wait"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFile:
    """The settings in the file; none if it does not exist."""

    path: str
    said: Mapping[str, str | int | float | bool]  # by key of the table

    def texts(self) -> dict[str, str]:
        """The settings as text, in the form of variables."""
        return {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in self.said.items()
        }


def place(environ: Mapping[str, str]) -> str:
    """Where the file is, or would be."""
    folder = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # XDG Base Directory Specification: ignore relative paths
        folder = os.path.expanduser("~/.config")
    return os.path.join(folder, "tandem", "config.toml")


def read(environ: Mapping[str, str]) -> UserFile:
    """Read the file.

    Raises:
        UsageError: it is not a regular file, not TOML, or has an unknown key.
    """
    path = place(environ)
    try:
        with open(path, "rb") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # With another user's HOME, as under sudo and in containers, it is not this user's file.
        return UserFile(path=path, said={})
    except OSError as exc:
        raise UsageError(f"{path}: {exc.strerror}") from exc
    return UserFile(path=path, said=_said(_parsed(text, path), path))


def _parsed(text: bytes, path: str) -> dict[str, Any]:
    import tomllib  # only if the file exists: every start of a job runs this

    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path}: {exc}") from exc


def _said(file: Mapping[str, Any], path: str) -> dict[str, str | int | float | bool]:
    version = file.get("version", 1)
    if version != 1:
        raise UsageError(f"{path}: version: {version!r} is not known; this Tandem reads version 1")
    for key in file:
        if key not in ("version", TABLE):
            raise UsageError(
                f"{path}: {key}: unknown key; the only table is [{TABLE}], with what your jobs "
                "ask for; all else belongs to the daemon, in /etc/tandem/config.toml"
            )
    table = file.get(TABLE, {})
    if not isinstance(table, Mapping):
        raise UsageError(
            f"{path}: {TABLE}: it is not a table; write [{TABLE}] on a line of its own"
        )
    for key, value in table.items():
        where = f"{path}: {TABLE}.{key}"
        if key not in KEYS:
            raise UsageError(f"{where}: unknown key; {_known(key)}")
        if not isinstance(value, str | int | float | bool):
            kind = type(value).__name__
            raise UsageError(f"{where}: a {kind} is not text in quotes, a number, true or false")
    return dict(table)


def _known(key: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, KEYS, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"known are {', '.join(KEYS)}"
