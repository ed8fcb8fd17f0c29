"""Commands that become another command, or end with its exit code."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from tandem._guarded import Guarded
from tandem._launch import EXIT_FAILED, LaunchError
from tandem.errors import TandemError


class Launching(Guarded):
    """A command whose own errors use exit codes of env(1); others may come from what it runs."""

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Give errors that exit code."""
        try:
            yield
        except click.UsageError as exc:
            exc.exit_code = EXIT_FAILED  # type: ignore[misc] # of the instance, not of its class
            raise
        except LaunchError:
            raise
        except TandemError as exc:
            raise LaunchError(str(exc), exit_code=EXIT_FAILED) from exc
