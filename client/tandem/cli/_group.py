"""The class of groups of commands, such as `tandem partition`."""

import click

_WHOLE = 1000  # columns; no first sentence is longer


class Group(click.Group):
    """A group whose help shows the first sentence of each command whole; click's cuts it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one row for each command, wrapped if need be."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(_WHOLE))
            for name, command in found.items()
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
