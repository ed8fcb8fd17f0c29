"""Commands that become another one, or end with its exit code."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from tandem._guarded import Guarded
from tandem._launch import EXIT_FAILED, LaunchError
from tandem.errors import TandemError


class Launching(Guarded):
    """Whatever is wrong ends it with a code of env(1): any other may be the command's own."""

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Gives what is wrong that code."""
        try:
            yield
        except click.UsageError as exc:
            exc.exit_code = EXIT_FAILED  # type: ignore[misc] # of this one, not of its class
            raise
        except LaunchError:
            raise
        except TandemError as exc:
            raise LaunchError(str(exc), exit_code=EXIT_FAILED) from exc
