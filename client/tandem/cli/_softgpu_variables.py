"""Check the environment variables of the software GPU that only its driver library reads."""

import os
from collections.abc import Mapping
from difflib import get_close_matches

import click

from tandem import softgpu
from tandem.errors import UsageError

_PREFIX = "TANDEM_SOFTGPU_"
_QUEUE, _KERNELS = f"{_PREFIX}QUEUE", f"{_PREFIX}KERNELS"
_OTHERS = ("BIN", "GREEN", "LINGER_MS", "QUEUE", "SLICE_NS", "SWITCH_NS", "TRACE", "USERS")
KNOWN = frozenset({*softgpu.OPTIONS.values(), *(_PREFIX + name for name in _OTHERS)})


def refuse_wrong_variables(env: Mapping[str, str]) -> None:
    """Check the variables before a program starts; warn on stderr about unknown ones.

    Raises:
        UsageError: a value is wrong; the text names the variable.
    """
    for name in sorted(env):
        if name.startswith(_PREFIX) and name not in KNOWN:
            near = get_close_matches(name, KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            click.echo(f"warning: nothing reads the variable {name}{hint}", err=True)
    queue = env.get(_QUEUE, "")
    if queue and not (queue.isascii() and queue.isdigit() and int(queue) > 0):
        raise UsageError(f"{_QUEUE} is '{queue}', must be a number of operations, at least 1")
    for path in filter(None, env.get(_KERNELS, "").split(os.pathsep)):
        if not os.access(path, os.R_OK):
            raise UsageError(f"{_KERNELS}: the library '{path}' does not exist or cannot be read")
