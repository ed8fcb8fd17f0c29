"""`tandem trace`: shows and records the driver calls of a command."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO, TypeVar

import click

from tandem._text import printable
from tandem.cli._files import cannot_write, refuse_same, written
from tandem.cli._group import Group
from tandem.cli._launching import Launching
from tandem.cli._parsed import NumberRange
from tandem.errors import DeadlineError, UnavailableError
from tandem.trace.file import FileWriter, Header, Recording, new_header, read
from tandem.trace.filters import Keep, names_calls, parse_filters
from tandem.trace.lines import Printer, Stamp
from tandem.trace.records import Call, Decoder, Item, Lost
from tandem.trace.summary import Summary
from tandem.trace.table import Table, parse_table

if TYPE_CHECKING:
    from tandem._client import Client
    from tandem._results import MemoryHistory

_SILENT = (DeadlineError, UnavailableError)  # the daemon no longer answers
_Command = TypeVar("_Command", bound=Callable[..., object])


def view_options(command: _Command) -> _Command:
    """Add the options for what to show, and how."""
    for option in reversed(
        [
            click.option(
                "-e",
                "filters",
                multiple=True,
                metavar="trace=WHAT|status=WHICH",
                help="Show only these calls: names, patterns or classes separated by commas, or "
                "failed, success, unfinished; ! negates. May be repeated.",
            ),
            click.option(
                "--all",
                "all_calls",
                is_flag=True,
                help="Also print look-ups (cuGetProcAddress), unless -e names calls.",
            ),
            click.option("-c", "counts", is_flag=True, help="Print a table of counts and times."),
            click.option("-C", "both", is_flag=True, help="Print the calls, then the table."),
            click.option("-t", "stamps", is_flag=True, help="Start lines with the time."),
            click.option(
                "-r",
                "relative",
                is_flag=True,
                help="Start lines with the time since the previous one.",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON with stable names."),
            click.option(
                "--limit", type=click.IntRange(min=0), help="Print at most this many calls."
            ),
        ]
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The values of `view_options`."""

    filters: tuple[str, ...]
    all_calls: bool
    counts: bool
    both: bool
    stamps: bool
    relative: bool
    as_json: bool
    limit: int | None

    @property
    def stamp(self) -> Stamp:
        """What lines start with."""
        if self.relative:
            return Stamp.RELATIVE
        return Stamp.TIME if self.stamps else Stamp.NONE


class Shown:
    """Prints calls as they arrive, and the table at the end."""

    def __init__(self, view: View, table: Table, output: TextIO, *, lines: bool = True) -> None:
        self._keep: Keep = parse_filters(view.filters, table)
        # A program starts with hundreds of look-ups; the table has them in one line.
        self._hides_lookups = not view.all_calls and not names_calls(view.filters)
        self._printer = Printer(table, stamp=view.stamp, as_json=view.as_json)
        self._output = output
        self._left = view.limit if lines and (view.both or not view.counts) else 0
        self._as_json = view.as_json
        self._summary = Summary() if view.counts or view.both else None

    def add(self, items: Iterable[Item]) -> None:
        """Show the calls that pass the filters."""
        for item in items:
            if isinstance(item, Lost):
                self._print(item)
            elif isinstance(item, Call) and self._keep(item):
                self._print(item)
                if self._summary:
                    self._summary.add(item)
        self._output.flush()

    def _print(self, item: Call | Lost) -> None:
        if self._left == 0 or (self._hides_lookups and isinstance(item, Call) and item.is_lookup):
            return
        if self._left is not None:
            self._left -= 1
        # Kernel names are arbitrary text, and a recording may come from anybody.
        print(printable(self._printer.line(item)), file=self._output)

    def finish(self) -> None:
        """Print the table, if one was asked for."""
        if self._summary is None:
            return
        if self._as_json:
            print(json.dumps({"summary": self._summary.as_dicts()}), file=self._output)
        else:
            print("\n".join(map(printable, self._summary.lines())), file=self._output)
        self._output.flush()


@click.group(cls=Group)
def trace() -> None:
    """Print, record and inspect the driver calls of a command.

    \b
    Examples:
      tandem trace calls -- python train.py
      tandem trace calls -o run.trace -- python train.py
      tandem trace show run.trace
    """


@trace.command(cls=Launching, context_settings={"allow_interspersed_args": False})
@view_options
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Record into this file instead of printing; -c and -C still print.",
)
@click.option(
    "--device-times",
    is_flag=True,
    help="Time launches and copies on the GPU, with an event before and after each.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def calls(
    command: tuple[str, ...], output: Path | None, device_times: bool, **options: object
) -> int:
    """Run COMMAND and print each driver call that it and its children make.

    Lines go to stderr, in the style of strace: process, call, arguments, result, duration. Look-ups
    of calls (cuGetProcAddress) are left out unless --all or -e asks for them. It shows only calls
    that the preload library intercepts (memory, copies, launches, synchronisation, events,
    captures; docs/interception.md lists them). It needs no daemon; if there is one, programs attach
    to it as usual, unless TANDEM_DISABLE=1.

    Times are CLOCK_MONOTONIC, or the device's own on the virtual clock of the software GPU. With
    --device-times, two timing events bracket every launch and copy: this costs about as much again,
    and leaves a gap between kernels that follow one another closely.

    \b
    Exit code: that of the command, 128+N if signal N ended it, or
      125  tandem failed       126  the command cannot be executed
      127  command not found

    \b
    Examples:
      tandem trace calls -e trace=alloc,copy -- python train.py
      tandem trace calls -c -e status=failed -- python train.py
      tandem trace calls --device-times -o run.trace -- python train.py
      tandem trace calls -- tandem softgpu run -- python program.py
    """
    from tandem._native import TRACE_CALLS
    from tandem.trace.tracer import TracedCommand

    table = parse_table(TRACE_CALLS)
    view = View(**options)  # type: ignore[arg-type]
    shown = Shown(view, table, sys.stderr, lines=output is None or view.both)
    with ExitStack() as stack:
        writer = None
        if output is not None:
            header = new_header(command, device_times=device_times, table=table)
            writer = _begin(output, stack.enter_context(_create(output)), header)
        decoder = Decoder(table)

        def consume(records: bytes) -> None:
            if writer:
                writer.add(records)
            if output is None or view.counts or view.both:
                shown.add(_in_order(decoder.feed(records)))

        traced = TracedCommand(command, os.environ, device_times=device_times)
        status = traced.follow(consume)
        if traced.failure is None and writer:
            writer.finish(status=status, lost=traced.lost)
    if traced.failure:
        return _ended_early(traced.failure, status)
    shown.finish()
    if traced.lost:
        click.echo(f"tandem: warning: {traced.lost} calls were not recorded", err=True)
    return status


@trace.command()
@view_options
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def show(file: Path, **options: object) -> None:
    """Print a recording, with the options of `tandem trace calls`.

    \b
    Examples:
      tandem trace show run.trace
      tandem trace show -c run.trace
      tandem trace show -e 'trace=!pass' --json run.trace
    """
    recording = read(file)
    shown = Shown(View(**options), recording.header.table, sys.stdout)  # type: ignore[arg-type]
    shown.add(recording.calls)
    shown.finish()
    warn(recording, file)


@trace.command()
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="File to write; - is standard output.",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def export(file: Path, output: Path) -> None:
    """Write a recording as Chrome JSON, for ui.perfetto.dev or chrome://tracing.

    \b
    Examples:
      tandem trace export run.trace -o run.json
    """
    from tandem.trace.chrome import write

    recording = read(file)
    refuse_same(file, output, "recording")
    with written(output) as text:
        write(recording, text)
    warn(recording, file)


@trace.command("record")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Chrome JSON file to write; - is standard output.",
)
@click.option(
    "--seconds",
    type=NumberRange(min=0, min_open=True),
    metavar="N",
    default=10,
    show_default=True,
    help="How many seconds to record, at most 600.",
)
def record(output: Path, seconds: float) -> None:
    """Record what all jobs do on the GPUs for a while, for ui.perfetto.dev.

    Each GPU has a track that shows which job has the turn. For each job there are the waits of its
    threads, its iterations, its phases and requests where it marks them, its share of the GPU, the
    moves of its memory to the host and back, and counters of what it holds. Share and memory are
    sampled ten times a second; all else is exact. For single calls use `tandem trace calls`. Ctrl-C
    ends the recording early, with exit code 130, and the file has what was recorded so far; so do
    SIGTERM, with 143, SIGHUP, with 129, and the end of the daemon, with 7.

    \b
    Examples:
      tandem trace record -o jobs.json
      tandem trace record -o jobs.json --seconds 60
    """
    from tandem._signals import ended_by_signals
    from tandem.chrome_trace import TraceWriter
    from tandem.cli._output import open_client
    from tandem.report.chrome import JobTrace
    from tandem.report.series import since
    from tandem.report.spans import Spans

    end: BaseException | None = None
    with ended_by_signals(), open_client() as client, written(output) as file:
        history, name_of = client.memory_history(), _Names(client)
        events = client.trace(seconds=seconds)  # a refused caller gets no file
        with TraceWriter(file, begin_ns=history.end_ns) as trace:
            jobs, spans = JobTrace(trace, name_of), Spans(history.end_ns, name_of)
            try:
                for event in events:
                    for span in spans.feed(event):
                        jobs.add(span)
                late = client.memory_history()
            except (KeyboardInterrupt, SystemExit, *_SILENT) as exc:  # keep what there is
                end, late = exc, _as_it_is(client, history)
            for span in spans.finish(max(late.end_ns, spans.last_ns)):
                jobs.add(span)
            jobs.finish(since(late, history.end_ns))
    if end is not None:
        click.echo(f"tandem: note: '{output}' has what was recorded so far", err=True)
        raise end


def _as_it_is(client: "Client", before: "MemoryHistory") -> "MemoryHistory":
    """Fetch the history again; return the earlier one if the daemon no longer answers."""
    try:
        return client.memory_history()
    except _SILENT:
        return before


class _Names:
    """Display names of jobs, fetched again whenever an unknown job appears."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._known: dict[str, str] = {}

    def __call__(self, job: str) -> str:
        if job not in self._known:
            with suppress(*_SILENT):  # its number serves as a name, too
                self._learn()
        return self._known.setdefault(job, job)

    def _learn(self) -> None:
        found = self._client.jobs(show_finished=True)
        titles = {one.name: f"{one.name} {one.display_name}".strip() for one in found}
        self._known |= {name: printable(title) for name, title in titles.items()}


def warn(recording: Recording, file: Path) -> None:
    """Warn about what the recording lacks."""
    if not recording.is_complete:
        click.echo(f"tandem: warning: '{file}' ends early; what follows was not recorded", err=True)
    if recording.lost:
        click.echo(f"tandem: warning: '{file}' lacks {recording.lost} calls", err=True)


def _ended_early(failure: OSError, status: int) -> int:
    if isinstance(failure, BrokenPipeError):  # the reader of stderr is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    else:
        click.echo(f"tandem: warning: the trace ends early: {failure.strerror}", err=True)
    return status


def _in_order(items: Iterable[Item]) -> Sequence[Item]:
    # Records arrive thread by thread; their calls have to be interleaved.
    return sorted(items, key=lambda item: item.number if isinstance(item, Call) else 0)


def _begin(path: Path, stream: BinaryIO, header: Header) -> FileWriter:
    try:
        return FileWriter(stream, header)
    except OSError as exc:
        raise cannot_write(path, exc) from exc


def _create(path: Path) -> BinaryIO:
    try:
        return path.open("wb", buffering=0)
    except OSError as exc:
        raise cannot_write(path, exc) from exc
