"""Option types: text that our own functions parse, revocable options, numbers without NaN."""

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
    """Name where a value came from: a variable, a key of the user's file, or the option itself."""
    match ctx and ctx.get_parameter_source(param.name or ""):
        case ParameterSource.ENVIRONMENT:
            return param.variable() if isinstance(param, Aliased) else str(param.envvar)
        case ParameterSource.DEFAULT_MAP:
            return f"{_user_file.place(os.environ)}: {_user_file.TABLE}.{param.name}"
    return param.opts[-1]


class Revocable(click.Option):
    """An option whose value from a variable or file `none` on the command line takes back."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Like click's, but `none` yields None, as if nothing had been given."""
        source = ctx.get_parameter_source(self.name or "")
        if value != NONE or source is not ParameterSource.COMMANDLINE:
            return super().type_cast_value(ctx, value)
        taken_back(ctx).update(self.variables())
        return None

    def variables(self) -> Sequence[str]:
        """Name all variables that set the option."""
        return [str(self.envvar)]


def taken_back(ctx: click.Context) -> set[str]:
    """Return the variables taken back; whatever reads variables by itself must not get them."""
    names: set[str] = ctx.meta.setdefault(__name__, set())
    return names


def refuse_taken_back(ctx: click.Context) -> None:
    """Check a command whose output adds to a program's variables, and can remove none.

    Raises:
        UsageError: a variable that was taken back is set.
    """
    if names := sorted(taken_back(ctx) & os.environ.keys()):
        raise UsageError(
            f"none cannot take back {', '.join(names)}, which the program would still be given; "
            "unset it first"
        )


class Aliased(Revocable):
    """An option whose variable has aliases of other tools; they count if ours is not set."""

    def __init__(
        self,
        *args: Any,
        aliases: Sequence[str],
        understood: Callable[[str], str | None],
        **kwargs: Any,
    ) -> None:
        """`understood` turns the text of an alias into ours; None means that it sets nothing."""
        super().__init__(*args, **kwargs)
        self._aliases = aliases
        self._understood = understood

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Like click's, but falls back to the first alias that sets something."""
        own = super().resolve_envvar_value(ctx)
        return own or next((text for _, text in self._said()), None)

    def variables(self) -> Sequence[str]:
        """Name our variable and its aliases."""
        return [*super().variables(), *self._aliases]

    def variable(self) -> str:
        """Name the variable that counts."""
        own = str(self.envvar)
        return own if os.environ.get(own) else next((name for name, _ in self._said()), own)

    def _said(self) -> Iterator[tuple[str, str]]:
        for name in self._aliases:
            if (theirs := os.environ.get(name)) and (text := self._understood(theirs)) is not None:
                yield name, text


class Parsed(click.ParamType[Any]):
    """A type whose text a function of ours parses; that function's errors become click's."""

    def __init__(self, name: str, parse: Callable[..., object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Parse the value; a usage error names the option or variable."""
        said = where_said(param, ctx) if param else self.name
        try:
            return self._parse(str(value), what=said)
        except UsageError as exc:
            raise click.UsageError(str(exc), ctx) from exc


class NumberRange(click.FloatRange):
    """Like click's, but refuses `nan`, which no bound excludes."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert to a number; a usage error names the option."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return number
