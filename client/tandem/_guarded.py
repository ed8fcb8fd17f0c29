"""Commands with a context manager around all that click does for them, from option parsing on.

Not in `cli`, because `tandem --help` loads nothing of that but its table of commands.
"""

from contextlib import AbstractContextManager

import click


class Guarded(click.Command):
    """A command that click runs inside `guard`, including help and errors."""

    def guard(self) -> AbstractContextManager[None]:
        """Return the context manager; for the subclass to define."""
        raise NotImplementedError

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Parse the options or print the help, as click does, inside the guard."""
        with self.guard():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, as click does, inside the guard."""
        with self.guard():
            return super().invoke(ctx)
