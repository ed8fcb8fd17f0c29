"""`tandem replay`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tandem._text import printable
from tandem.cli._files import refuse_same, refuse_unwritable
from tandem.cli._output import json_option, print_table
from tandem.cli.trace import warn
from tandem.errors import UsageError
from tandem.softgpu import PROFILES
from tandem.trace.file import read
from tandem.trace.lines import duration_text
from tandem.trace.plan import make_plan
from tandem.trace.replay import SPEEDS, Options, Result
from tandem.trace.replay import replay as play


@click.command()
@click.option(
    "--speed",
    type=click.Choice(SPEEDS),
    default="asap",
    show_default=True,
    help="asap: threads wait only for the GPU; recorded: also for the recorded time between calls.",
)
@click.option(
    "--clock",
    type=click.Choice(["virtual", "real"]),
    default="virtual",
    help="Clock of the software GPU.",
)
@click.option(
    "--mode",
    type=click.Choice(["mps", "time"]),
    default="mps",
    help="mps: no turns, as recorded times contain the waiting; time: processes take turns again.",
)
@click.option(
    "--profile", type=click.Choice(PROFILES), help="Which GPU to imitate; h200 by default."
)
@click.option(
    "--timeline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the timeline in this file.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Join the software GPU that runs there, as it is, instead of starting one.",
)
@json_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def replay(file: Path, as_json: bool, **options: Any) -> None:
    """Replay a recording of `tandem trace calls` on the software GPU.

    Every recorded process and thread repeats its allocations, copies, launches, events and waits,
    in the recorded order of each stream. If the recording was made with --device-times, a kernel
    lasts as long as it did on the GPU; else it takes no time. Memory contents are not replayed.

    \b
    Examples:
      tandem replay run.trace
      tandem replay --speed recorded --timeline t.jsonl run.trace
    """
    _check_timeline(file, options["timeline"], options["folder"])
    recording = read(file)
    warn(recording, file)  # first: missing calls may be why it cannot be replayed
    result = play(make_plan(recording), Options(folder=folder_of(options), **options))
    if as_json:
        click.echo(json.dumps(asdict(result), indent=2))
    else:
        show(result)


def _check_timeline(file: Path, timeline: Path | None, folder: Path | None) -> None:
    if timeline is None:
        return
    if folder is not None:
        raise UsageError(
            f"--timeline: the software GPU in '{folder}' runs already and keeps its own, or none; "
            "leave out --timeline or --dir"
        )
    refuse_same(file, timeline, "recording")
    refuse_unwritable(timeline, "timeline")


def folder_of(options: dict[str, Any]) -> Path | None:
    """Remove the folder from the options and return it."""
    folder = options.pop("folder")
    return None if folder is None else Path(folder)


def show(result: Result) -> None:
    """Print the result for people."""
    processes = f"{result.processes} process{'es' * (result.processes != 1)}"
    threads = f"{result.threads} thread{'s' * (result.threads != 1)}"
    click.echo(f"replayed on {result.device}: {processes}, {threads}")
    rows = [
        ("makespan", result.recorded_makespan_ns, result.replayed_makespan_ns),
        ("kernels", result.recorded_kernel_ns, result.replayed_kernel_ns),
    ]
    table = [
        [name, duration_text(before), "-" if after is None else duration_text(after)]
        for name, before, after in rows
    ]
    for kind, count in sorted(result.recorded_counts.items()):
        table.append([kind, str(count), str(result.replayed_counts.get(kind, 0))])
    columns = ("recorded", "replayed")
    print_table(("", *columns), table, right=columns)
    for title, what in (("not replayed", result.left_out), ("refused", result.refused)):
        for name, count in sorted(what.items()):
            click.echo(f"{title}: {count} x {printable(name)}")
    if result.processes > 1:
        click.echo(
            "processes do not wait for each other's turns here, as they may have had to when they "
            "were recorded: their work may overlap more"
        )
    if result.untimed_launches:
        click.echo(
            f"{result.untimed_launches} launches have no recorded duration, and take as long as "
            "others of their kernel, or no time; record with --device-times"
        )
