"""`tandem demo`: shows what Tandem is for, on whatever device there is."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tandem.cli._files import refuse_unwritable
from tandem.cli._group import Group
from tandem.cli._parsed import NumberRange
from tandem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tandem.demo.measure import Outcome


@click.group(cls=Group, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option(
    "--seconds",
    type=NumberRange(min=0.5, max=600),
    help="Length of each scenario, 0.5 to 600; by default as long as 300 requests take.",
)
@click.option(
    "--clock",
    type=click.Choice(["real", "virtual"]),
    default="real",
    show_default=True,
    help="virtual: on the software GPU, where a run repeats exactly.",
)
@click.option("--keep", is_flag=True, help="Keep the daemon and its runtime directory.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a Chrome/Perfetto trace of all scenarios.",
)
@click.pass_context
def demo(
    context: click.Context,
    as_json: bool,
    seconds: float | None,
    clock: str,
    keep: bool,
    trace: Path | None,
) -> None:
    """Let an inference server and two trainers share one GPU, with Tandem and without.

    Uses the NVIDIA GPU if there is one, else the software GPU. Exits with 1 if a checksum is wrong.

    \b
    Examples:
      tandem demo
      tandem demo --clock virtual --trace demo.json
      tandem demo --json | jq .ratios
      tandem demo memory
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    from tandem.demo.conductor import Conductor
    from tandem.demo.process import WorkerError
    from tandem.demo.report import build_report, format_table

    if trace is not None:
        refuse_unwritable(trace, "trace")
    signal.signal(signal.SIGTERM, _terminate)
    folder = Path(tempfile.mkdtemp(prefix="tandem-demo-"))
    finished = False
    try:
        conductor = Conductor.prepare(
            clock=clock, seconds=seconds, folder=folder, keep=keep, say=_say
        )
        results = conductor.run()
        finished = True
        report = build_report(results)
    except WorkerError as failure:
        raise click.ClickException(str(failure)) from failure
    finally:
        if keep and finished:
            _say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    click.echo(json.dumps(report) if as_json else format_table(report, notes=results.notes))
    if trace is not None:  # after the figures, so that a full disk cannot lose them
        _write_trace(trace, results.outcomes)
    if not results.all_correct:
        click.echo("error: a checksum is wrong", err=True)
        sys.exit(1)


@demo.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option(
    "--seconds",
    type=NumberRange(min=0.5, max=600),
    help="GPU time of each trainer, 0.5 to 600; by default enough for several turns.",
)
@click.option(
    "--clock",
    type=click.Choice(["real", "virtual"]),
    default="real",
    show_default=True,
    help="virtual: on the software GPU, in its own time, however busy this machine is.",
)
def memory(as_json: bool, seconds: float | None, clock: str) -> None:
    """Let jobs share a GPU whose memory cannot hold all of them.

    Runs two trainers with 70 % of the memory each, then three notebooks with 50 % each: without
    Tandem, where one dies; one after the other; and in turns under Tandem, where all finish. Exits
    with 1 if a checksum is wrong, or if a job did not finish that should have.

    \b
    Examples:
      tandem demo memory
      tandem demo memory --clock virtual --seconds 2
      tandem demo memory --json | jq .ratios
    """
    from tandem.demo.memory.conductor import Conductor
    from tandem.demo.memory.report import build_report, format_text
    from tandem.demo.process import WorkerError

    signal.signal(signal.SIGTERM, _terminate)
    folder = Path(tempfile.mkdtemp(prefix="tandem-demo-"))
    try:
        conductor = Conductor.prepare(clock=clock, seconds=seconds, folder=folder, say=_say)
        results = conductor.run()
    except WorkerError as failure:
        raise click.ClickException(str(failure)) from failure
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = build_report(results)
    click.echo(json.dumps(report) if as_json else format_text(report))
    if not results.are_right:
        click.echo("error: a checksum is wrong, or a job died that should not have", err=True)
        sys.exit(1)


def _refuse_options(context: click.Context) -> None:
    """Refuse options of `tandem demo` in front of a subcommand, where they would be ignored."""
    for option in context.command.params:
        if option.name and context.get_parameter_source(option.name) != ParameterSource.DEFAULT:
            flag, command = option.opts[0], context.invoked_subcommand
            context.fail(f"{flag} belongs after '{command}', if it has that option")


def _write_trace(path: Path, outcomes: Sequence[Outcome]) -> None:
    from tandem.demo.trace import write_trace

    try:
        write_trace(path, outcomes)
    except OSError as exc:
        raise UsageError(f"cannot write the trace '{path}': {exc.strerror}") from exc
    _say(f"trace: {path}")


def _say(text: str) -> None:
    click.echo(text, err=True)


def _terminate(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)  # unwinding ends everything that was started
