"""Commands that become another one, or end with its exit code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from tandem._launch import EXIT_FAILED, LaunchError
from tandem.errors import TandemError


class Launching(click.Command):
    """Whatever is wrong ends it with a code of env(1): any other may be the command's own."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Like click's; it reads the options."""
        with _failing():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Like click's."""
        with _failing():
            return super().invoke(ctx)


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except click.UsageError as exc:
        exc.exit_code = EXIT_FAILED  # type: ignore[misc] # of this one, not of its class
        raise
    except LaunchError:
        raise
    except TandemError as exc:
        raise LaunchError(str(exc), exit_code=EXIT_FAILED) from exc
