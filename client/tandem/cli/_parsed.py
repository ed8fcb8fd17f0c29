"""Options whose text one of our own functions parses, and numbers that are ones."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource

from tandem import _user_file
from tandem.errors import UsageError

NONE = "none"


def where_said(param: click.Parameter, ctx: click.Context | None) -> str:
    """What its value came from: the variable or the key of the user's file, else the option."""
    match ctx and ctx.get_parameter_source(param.name or ""):
        case ParameterSource.ENVIRONMENT:
            return param.variable() if isinstance(param, Aliased) else str(param.envvar)
        case ParameterSource.DEFAULT_MAP:
            return f"{_user_file.place(os.environ)}: {_user_file.TABLE}.{param.name}"
    return param.opts[-1]


class Revocable(click.Option):
    """An option that `none` on the command line takes back, whatever else says something of it."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Like click's; None, as if nobody had said anything, for `none`."""
        source = ctx.get_parameter_source(self.name or "")
        if value != NONE or source is not ParameterSource.COMMANDLINE:
            return super().type_cast_value(ctx, value)
        taken_back(ctx).update(self.variables())
        return None

    def variables(self) -> Sequence[str]:
        """All that say it."""
        return [str(self.envvar)]


def taken_back(ctx: click.Context) -> set[str]:
    """Variables that do not count, and that who reads them by itself is not to have."""
    names: set[str] = ctx.meta.setdefault(__name__, set())
    return names


def refuse_taken_back(ctx: click.Context) -> None:
    """For a command whose output a program gets beside the variables that are there.

    Raises:
        UsageError: one that was to be taken back is there.
    """
    if names := sorted(taken_back(ctx) & os.environ.keys()):
        raise UsageError(
            f"none cannot take back {', '.join(names)}, which the program would be given all the "
            "same; unset it first"
        )


class Aliased(Revocable):
    """An option whose variable others call otherwise: theirs counts where ours says nothing."""

    def __init__(
        self,
        *args: Any,
        aliases: Sequence[str],
        understood: Callable[[str], str | None],
        **kwargs: Any,
    ) -> None:
        """`understood`: a text of theirs as the option takes it; None says nothing."""
        super().__init__(*args, **kwargs)
        self._aliases = aliases
        self._understood = understood

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Like click's; of the aliases the first that says something."""
        own = super().resolve_envvar_value(ctx)
        return own or next((text for _, text in self._said()), None)

    def variables(self) -> Sequence[str]:
        """Ours, and those of others."""
        return [*super().variables(), *self._aliases]

    def variable(self) -> str:
        """The name of the one that counts."""
        own = str(self.envvar)
        return own if os.environ.get(own) else next((name for name, _ in self._said()), own)

    def _said(self) -> Iterator[tuple[str, str]]:
        for name in self._aliases:
            if (theirs := os.environ.get(name)) and (text := self._understood(theirs)) is not None:
                yield name, text


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
