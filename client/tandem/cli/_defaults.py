"""Commands whose options take their defaults from the user's own file."""

import os
import re
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from tandem import _environment, _user_file
from tandem.cli._parsed import where_said
from tandem.cli._requests import request_of
from tandem.errors import TandemError, UsageError

_UNSEEN = (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)  # not on the command line
_SAID = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class Requesting(click.Command):
    """A command with request options; the user's file sets those without a flag or variable.

    Errors in the file are reported after errors on the command line, and never by `--help` or while
    a shell completes words.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Like click's, but also reads the user's file."""
        wrong, texts = None, {}
        try:
            texts = _user_file.read(os.environ).texts()
        except UsageError as exc:
            wrong = exc
        context = super().make_context(info_name, args, parent, default_map=texts, **extra)
        if wrong is not None and not context.resilient_parsing:
            raise wrong
        _give_way(context)
        return context

    def invoke(self, ctx: click.Context) -> object:
        """Like click's, but an error about an option says if a variable or the file set it."""
        try:
            return super().invoke(ctx)
        except TandemError as exc:
            if said := [where_said(p, ctx) for p in self.params if _is_named(p, ctx, str(exc))]:
                exc.args = (f"{exc} ({' and '.join(said)})",)
            raise


def check(command: click.Command, environ: Mapping[str, str]) -> _user_file.UserFile:
    """Read the user's file and check that `command`, given no options, would accept it.

    Raises:
        UsageError: it would not.
    """
    file = _user_file.read(environ)
    context = click.Context(command, default_map=file.texts())
    for param in command.params:
        context.params[param.name or ""] = _value(param, context)
    try:
        _environment.check_request(request_of(context.params))
    except UsageError as exc:
        raise UsageError(f"{file.path}: {exc}") from exc
    return file


def _value(param: click.Parameter, context: click.Context) -> object:
    """Return the file's value of an option, or else its built-in default; ignore variables."""
    name, texts = param.name or "", context.default_map or {}
    if name not in texts:
        default = param.get_default(context)
        return default if isinstance(default, str | bool) else None
    context.set_parameter_source(name, ParameterSource.DEFAULT_MAP)
    try:
        return param.type_cast_value(context, texts[name])
    except click.BadParameter as exc:
        raise UsageError(f"{where_said(param, context)}: {exc.message}") from exc
    except click.UsageError as exc:
        raise UsageError(exc.message) from exc


def _give_way(context: click.Context) -> None:
    """Drop the file's settings for moving memory that contradict those given for this job.

    So users need not revoke them explicitly.
    """
    given, source = context.params, context.get_parameter_source
    said = {name: value for name, value in given.items() if source(name) in _SAID}
    against: tuple[str, ...] = ()
    if said.get("checkpoint"):
        against = ("swappable", "idle_release")
    elif "swappable" in said:
        against = ("checkpoint",) if said["swappable"] else ("idle_release",)
    for name in against:
        if source(name) is ParameterSource.DEFAULT_MAP:
            given[name] = False if name == "checkpoint" else None


def _is_named(param: click.Parameter, ctx: click.Context, text: str) -> bool:
    if ctx.get_parameter_source(param.name or "") not in _UNSEEN:
        return False
    return any(re.search(rf"{re.escape(option)}(?![\w-])", text) for option in param.opts)
