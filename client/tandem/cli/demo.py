"""`tandem demo`: the main job, on whatever device there is."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5, max=600),
    help="Length of each scenario; by default as long as 300 requests need.",
)
@click.option(
    "--clock",
    type=click.Choice(["real", "virtual"]),
    default="real",
    show_default=True,
    help="Virtual: on the software GPU, where a run repeats exactly.",
)
@click.option("--keep", is_flag=True, help="Leave the daemon and its runtime directory behind.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a Chrome/Perfetto trace of all scenarios.",
)
def demo(as_json: bool, seconds: float | None, clock: str, keep: bool, trace: Path | None) -> None:
    """Let an inference server and two trainers share one GPU, with Tandem and without.

    Takes the NVIDIA GPU where there is one, else the software GPU. Exits with 1 when a checksum is
    wrong.

    \b
    Examples:
      tandem demo
      tandem demo --clock virtual --trace demo.json
      tandem demo --json | jq .ratios
    """
    from tandem.demo.conductor import Conductor
    from tandem.demo.process import WorkerError
    from tandem.demo.report import build_report, format_table
    from tandem.demo.trace import write_trace

    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="tandem-demo-"))
    finished = False
    try:
        conductor = Conductor.prepare(
            clock=clock, seconds=seconds, folder=folder, keep=keep, say=_say
        )
        results = conductor.run()
        finished = True
        report = build_report(results)
        if trace is not None:
            write_trace(trace, [*results.alone.values(), results.unmanaged, results.tandem])
            _say(f"trace: {trace}")
    except WorkerError as failure:
        raise click.ClickException(str(failure)) from failure
    finally:
        if keep and finished:
            _say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    click.echo(json.dumps(report) if as_json else format_table(report, notes=results.notes))
    if not results.all_correct:
        click.echo("error: a checksum is wrong", err=True)
        sys.exit(1)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
