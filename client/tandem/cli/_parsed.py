"""Options whose text one of our own functions parses, and numbers that are ones."""

import math
import os
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from tandem import _user_file
from tandem.errors import UsageError


def where_said(param: click.Parameter, ctx: click.Context | None) -> str:
    """What its value came from: the variable or the key of the user's file, else the option."""
    match ctx and ctx.get_parameter_source(param.name or ""):
        case ParameterSource.ENVIRONMENT:
            return str(param.envvar)
        case ParameterSource.DEFAULT_MAP:
            return f"{_user_file.place(os.environ)}: {_user_file.TABLE}.{param.name}"
    return param.opts[-1]


class Parsed(click.ParamType[Any]):
    """An option whose text `units` parses; its error becomes click's."""

    def __init__(self, name: str, parse: Callable[..., object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """The parsed value, or a usage error that names the option or variable."""
        said = where_said(param, ctx) if param else self.name
        try:
            return self._parse(str(value), what=said)
        except UsageError as exc:
            raise click.UsageError(str(exc), ctx) from exc


class NumberRange(click.FloatRange):
    """click's, without `nan`, which no bound keeps out."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or a usage error that names the option."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return number
