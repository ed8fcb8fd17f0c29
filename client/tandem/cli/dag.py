"""`tandem dag`: what a job does, as a graph."""

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tandem._text import printable
from tandem.cli import _completing
from tandem.cli._files import refuse_same, written
from tandem.cli._group import Group
from tandem.cli._output import json_option, open_client, print_json, print_table
from tandem.cli._parsed import Parsed
from tandem.cli._progress import Progress, progress
from tandem.errors import NotFoundError, UnavailableError, UsageError

if TYPE_CHECKING:
    from tandem.dag.graph import Graph
    from tandem.dag.model import Window

_Command = TypeVar("_Command", bound=Callable[..., object])
_DEFAULT = "draw"
_WRITERS = {  # each has write(graph, file)
    "dot": "tandem.dag.dot",
    "json": "tandem.dag.json_form",
    "svg": "tandem.dag.svg",
    "html": "tandem.dag.html",
    "perfetto": "tandem.dag.perfetto",
}
_SUFFIXES = {".dot": "dot", ".gv": "dot", ".json": "json", ".svg": "svg", ".html": "html"}
_LONG_BYTES = 4 << 20  # a larger recording takes long enough to show progress
_NOBODY = Progress(is_shown=False)
_HELP_FLAGS = ("-h", "--help")


def _form_of(output: Path | None) -> str:
    """Choose the form by the suffix of the output file.

    Raises:
        UsageError: no form has that suffix.
    """
    if output is None or not output.suffix:
        return "dot"
    if output.suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise UsageError(
            f"{output}: no form has the suffix '{output.suffix}'; those with one are {known}, "
            "and --format names any"
        )
    return _SUFFIXES[output.suffix]


class _DrawsByDefault(Group):
    """`tandem dag TRACE` is `tandem dag draw TRACE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default verb if none was given."""
        if args and args[0] not in self.commands and args[0] not in _HELP_FLAGS:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


def parse_iteration(text: str, *, what: str = "iteration") -> int:
    """Parse the number of an iteration, from 1 up."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(
            f"{what} {text!r} is not an iteration: they are counted from 1, and `tandem dag stats` "
            "says how many there are"
        )
    return int(text)


def graph_options(command: _Command) -> _Command:
    """Add the argument and options that choose the operations of the graph."""
    place = click.argument("place", metavar="JOB|TRACE", shell_complete=_completing.jobs)
    iteration = click.option(
        "--iteration",
        type=Parsed("N", parse_iteration),
        metavar="N",
        help="Show only that iteration, counted from 1; by default all operations.",
    )
    signatures = click.option(
        "--signatures",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help='Parameters of kernels whose names lack them: TOML, `name = "const float*, int"`.',
    )
    return iteration(signatures(place(command)))


@click.group(cls=_DrawsByDefault)
def dag() -> None:
    """Show which operations of a job depend on which, and why.

    `tandem dag TRACE` is `tandem dag draw TRACE`. TRACE is a recording of `tandem trace calls`; a
    name that is not a file is taken as a running job. docs/dag.md explains nodes and edges.

    \b
    Examples:
      tandem dag run.trace --iteration 3 -o iteration.html
      tandem dag train -o train.svg
      tandem trace calls --device-times -o run.trace -- python train.py
    """


@dag.command()
@graph_options
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_WRITERS)),
    help="What to write; by default chosen by the suffix of -o, else dot.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; standard output by default, and for -.",
)
def draw(
    place: str,
    iteration: int | None,
    signatures: Path | None,
    form: str | None,
    output: Path | None,
) -> None:
    """Write the graph of a recording or of a running job.

    \b
    dot       for graphviz: one cluster per stream
    json      everything, with stable names (docs/dag.md)
    svg       a picture over time: one lane per stream, repeated chains as one box
    html      the picture, to zoom into, with statistics; needs no network
    perfetto  for ui.perfetto.dev: one track per stream, edges as flows

    \b
    Examples:
      tandem dag run.trace --iteration 3 | dot -Tsvg -o graph.svg
      tandem dag draw train -o graph.json
    """
    if output is not None and Path(place).exists():
        refuse_same(Path(place), output, "recording")
    chosen = form or _form_of(output)
    with _nothing_to_collect(), _told(place) as told:
        graph = load_graph(place, iteration, signatures, chosen, told)
        if output is not None or not sys.stdout.isatty():
            told.now(f"writing {len(graph):,} operations as {chosen}")
        _write(graph, chosen, output)


@dag.command()
@graph_options
@json_option
def stats(place: str, iteration: int | None, signatures: Path | None, as_json: bool) -> None:
    """Print statistics of the graph of a recording or of a running job.

    They are counts of nodes and edges, the critical path, how far kernels and transfers overlap,
    what bounds the kernels, why the GPU is idle, and what is not known. Start times are
    reconstructed.

    \b
    Examples:
      tandem dag stats run.trace --iteration 3
      tandem dag stats train --json
    """
    from tandem.dag.stats import stats_of

    with _nothing_to_collect(), _told(place) as told:
        found = stats_of(load_graph(place, iteration, signatures, told=told))
    if as_json:
        print_json(found)
        return
    for name, value in found.facts():
        click.echo(f"{name}: {printable(value)}")
    for title, header, rows in filter(itemgetter(2), found.tables()):
        click.echo(f"\n{title}")
        shown = [[cell if isinstance(cell, str) else cell[1] for cell in row] for row in rows]
        print_table(header, shown, right=header[1:])
    for doubt in found.doubts():
        click.echo(f"tandem: note: {printable(doubt)}", err=True)


@contextmanager
def _nothing_to_collect() -> Iterator[None]:
    # A graph has no reference cycles, and searching a million operations for some takes long.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _told(place: str) -> AbstractContextManager[Progress]:
    path = Path(place)
    return progress(is_long=path.is_file() and path.stat().st_size >= _LONG_BYTES)


def load_graph(
    place: str,
    iteration: int | None,
    signatures: Path | None = None,
    form: str = "",
    told: Progress = _NOBODY,
) -> "Graph":
    """Load the graph of a recording or, if there is no such file, of a job.

    Raises:
        NotFoundError: there is neither, or the file of signatures does not exist.
        UnavailableError: there is no such file, and no daemon to ask for the job.
        UsageError: the recording is damaged, lacks that iteration or has more operations than the
            form can show, or a signature is wrong.
    """
    from tandem.dag.graph import graph_of
    from tandem.dag.iterations import bounds, with_iterations
    from tandem.dag.limits import refuse_too_many
    from tandem.dag.signatures import load

    told.now(f"reading {printable(place)}")
    path = Path(place)
    declared = load(signatures) if signatures else {}
    window = _of_trace(path, declared, told) if path.exists() else _of_job(place, declared)
    for name in sorted(declared.keys() - {operation.name for operation in window.operations}):
        text = f"tandem: note: no kernel '{printable(name)}' is launched; it is in {signatures}"
        click.echo(text, err=True)
    told.now(f"looking for iterations in {len(window.operations):,} operations")
    window = with_iterations(window)
    first, last = bounds(window, iteration)
    refuse_too_many(window, last - first, form)
    told.now(f"making the graph of {len(window.operations):,} operations")
    return graph_of(window, iteration)


def _of_trace(path: Path, signatures: Mapping[str, str], told: Progress) -> "Window":
    from tandem.cli.trace import warn
    from tandem.dag.from_trace import from_trace
    from tandem.trace.file import read

    recording = read(path)
    told.now("")
    warn(recording, path)
    told.now(f"reading {len(recording.calls):,} calls")
    return from_trace(recording, str(path), signatures)


def _of_job(name: str, signatures: Mapping[str, str]) -> "Window":
    from tandem.dag.from_job import from_job

    with open_client() as client:
        try:
            windows = client.windows(name, signatures=signatures)
            gpus = client.gpus()
        except NotFoundError as exc:
            text = f"{exc}; nor is there a recording '{name}' (`tandem trace calls -o` makes one)"
            raise NotFoundError(text) from exc
        except UnavailableError as exc:
            text = f"there is no file '{name}'; looking for a job of that name failed: {exc}"
            raise UnavailableError(text) from exc
    return from_job(windows, name, gpus)


def _write(graph: "Graph", form: str, output: Path | None) -> None:
    write = importlib.import_module(_WRITERS[form]).write
    if output is None:
        write(graph, sys.stdout)
        return
    with written(output) as file:
        write(graph, file)
