"""Output files of commands: never the input file, and written completely or not at all."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tandem.errors import NO_ROOM, CapacityError, TandemError, UsageError

STANDARD_OUTPUT = Path("-")


def refuse_same(source: Path, output: Path, what: str) -> None:
    """Refuse to overwrite the file that is read.

    Raises:
        UsageError: both are the same file, by whatever name.
    """
    same = source.resolve() == output.resolve()
    if same or (source.exists() and output.exists() and source.samefile(output)):
        raise UsageError(f"'{output}' is the {what} itself; name another file")


def refuse_unwritable(path: Path, what: str) -> None:
    """Fail early if a file that another process opens later cannot be written.

    Raises:
        UsageError: it cannot; the text says why.
    """
    folder = path.absolute().parent
    if path.is_dir():
        why = "it is a directory"
    elif not folder.is_dir():
        why = f"there is no directory '{folder}'"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        why = "you may not write there"
    else:
        return
    raise UsageError(f"cannot write the {what} '{path}': {why}")


def cannot_write(output: Path, failure: OSError) -> TandemError:
    """Return the error to raise for a failed write: no room left, or a bad output file."""
    if failure.errno in NO_ROOM:
        return CapacityError(f"cannot write '{output}': {failure.strerror}")
    return UsageError(f"cannot write '{output}': {failure.strerror}; choose another -o")


@contextmanager
def written(output: Path) -> Iterator[TextIO]:
    """Yield a text file that becomes `output` once all is written; `-` is standard output.

    Raises:
        CapacityError: there is no room for it.
        UsageError: it cannot be written; the text says why.
    """
    if output == STANDARD_OUTPUT:
        yield sys.stdout
        return
    try:
        with replacing(output) as fresh, fresh.open("w", encoding="utf-8") as file:
            yield file
    except OSError as exc:
        raise cannot_write(output, exc) from exc


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """Yield a path to write to, which becomes `output` once all is written.

    If that fails, `output` stays as it was; its permissions are kept. Pipes and devices are written
    directly.
    """
    target = output.resolve()
    is_special = output.exists() and not output.is_file()
    if is_special or not os.access(target.parent, os.W_OK):
        yield output
        return
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _make(fresh, target)
        yield fresh
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def _make(fresh: Path, target: Path) -> None:
    # O_EXCL: in a folder that others can write to, somebody may plant a link at a guessed name.
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)) as file:
        if target.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
