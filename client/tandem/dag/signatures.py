"""Signatures of kernels declared by people, for kernels whose names do not contain them.

A TOML file: `kernel = "const float* from, float* to, int n"`, a line for each kernel.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from tandem._native import Signature
from tandem.errors import NotFoundError, UsageError


def load(path: Path) -> dict[str, str]:
    """Read C parameter lists by kernel name from a file.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it cannot be read, or contains something that is not a parameter list; the text
            says which.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise NotFoundError(f"there is no file '{path}' with signatures") from exc
    except OSError as exc:
        raise UsageError(f"cannot read '{path}': {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UsageError(f"'{path}' is not valid TOML: {exc}") from exc
    parse(table, source=f"'{path}': ")
    return table


def parse(declared: Mapping[str, object], *, source: str = "") -> dict[str, Signature]:
    """Parse the parameter lists.

    Raises:
        UsageError: one is not a parameter list.
    """
    return {name: _parse(name, text, source) for name, text in declared.items()}


def _parse(name: str, text: object, source: str) -> Signature:
    if not isinstance(text, str):
        raise UsageError(
            f"{source}kernel '{name}' is {text!r}, and not a C parameter list in quotes"
        )
    try:
        return Signature(text)
    except ValueError as exc:
        raise UsageError(f"{source}kernel '{name}': {exc}") from exc
