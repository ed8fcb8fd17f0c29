"""Options whose text one of our own functions parses."""

from collections.abc import Callable
from typing import Any

import click

from tandem.errors import UsageError


class Parsed(click.ParamType[Any]):
    """An option whose text `units` parses; its error becomes click's."""

    def __init__(self, name: str, parse: Callable[..., object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """The parsed value, or a usage error that names the option."""
        option = param.opts[-1] if param else self.name
        try:
            return self._parse(str(value), what=option)
        except UsageError as exc:
            raise click.UsageError(str(exc), ctx) from exc
