"""`tandem softgpu timeline` and `tandem softgpu report`: show people what a run did."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tandem.cli._files import cannot_write, refuse_same, replacing
from tandem.cli._output import json_option
from tandem.errors import UsageError

if TYPE_CHECKING:
    from tandem.softgpu._timeline import Timeline

_PLACE = click.argument("place", metavar="TIMELINE|DIR", type=click.Path(path_type=Path))


@click.command()
@_PLACE
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write.",
)
def timeline(place: Path, output: Path) -> None:
    """Convert a timeline for ui.perfetto.dev or chrome://tracing.

    Each client becomes a process with one track per stream; the engines of each GPU become
    counters. DIR is the directory of a device process that was started with --timeline.

    \b
    Examples:
      tandem softgpu run --timeline t.jsonl -- python program.py
      tandem softgpu timeline t.jsonl -o trace.json
    """
    from tandem.softgpu._perfetto import write_perfetto
    from tandem.softgpu._timeline import Timeline, find_timeline

    path, _ = find_timeline(place)
    source = Timeline(path)
    refuse_same(path, output, "timeline")
    try:
        with replacing(output) as fresh:
            count = write_perfetto(source, fresh)
            _refuse_other(source, count)
    except OSError as exc:
        raise cannot_write(output, exc) from exc
    early = ", which ends early: its disk was full" if source.ends_early else ""
    left_out = f", {source.skipped_lines} lines left out" if source.skipped_lines else ""
    click.echo(f"{output}: {count} operations{left_out}{early}; open it in ui.perfetto.dev")


@click.command()
@_PLACE
@click.argument("output", metavar="OUT.html", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def report(place: Path, output: Path, *, as_json: bool) -> None:
    """Write an HTML report of a run: utilisation, shares, kernels, waiting times, a picture.

    The file is self-contained and needs no network. DIR is the directory of a device process that
    was started with --timeline.

    \b
    Examples:
      tandem softgpu report t.jsonl run.html
      tandem softgpu report "$XDG_RUNTIME_DIR/tandem/softgpu" run.html
    """
    from tandem.softgpu._report import notes, write_report
    from tandem.softgpu._timeline import Timeline, find_timeline

    path, about = find_timeline(place)
    source = Timeline(path)
    refuse_same(path, output, "timeline")
    try:
        with replacing(output) as fresh:
            summary = write_report(source, about, fresh)
            _refuse_other(source, summary.rows)
    except OSError as exc:
        raise cannot_write(output, exc) from exc
    left_out = notes(source, summary)
    if as_json:
        facts = {"output": str(output), "rows": summary.rows, "length_ns": summary.length_ns}
        counts = {"clients": len(summary.clients), "switches": summary.switches}
        click.echo(json.dumps({**facts, **counts, "notes": left_out}))
        return
    count, switches = len(summary.clients), summary.switches
    clients = "1 client" if count == 1 else f"{count} clients"
    turns = f", {switches} changes of contexts" if switches else ""
    click.echo(f"{output}: {summary.rows - switches} operations of {clients}{turns}")
    for note in left_out:
        click.echo(f"  {note}")


def _refuse_other(source: "Timeline", rows: int) -> None:
    if rows == 0 and source.skipped_lines:
        raise UsageError(
            f"'{source.path}' is no timeline of a software GPU: none of its lines is an operation"
        )
