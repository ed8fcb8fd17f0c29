"""Commands that have something around them from the moment that click reads their options.

Not in `cli`, of which `tandem --help` loads nothing but its table.
"""

from contextlib import AbstractContextManager

import click


class Guarded(click.Command):
    """`guard` is around all that click does for the command, help and errors included."""

    def guard(self) -> AbstractContextManager[None]:
        """For the subclass."""
        raise NotImplementedError

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Like click's; it reads the options, and prints the help."""
        with self.guard():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Like click's; it runs the command."""
        with self.guard():
            return super().invoke(ctx)
