"""The live view: GPUs, a table of jobs in a stable order, and why the selected job waits.

Textual's worker threads ask the daemon, one query at a time; its event loop owns the screen. Names
of jobs are shown as they are, never read as markup.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar, Protocol

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.widgets import DataTable, Footer, Static

from tandem._results import Explanation, Gpu, Job
from tandem._text import printable
from tandem.cli._output import COLOURS
from tandem.cli._top_rows import FIGURES, HEADER, Seen, gpu_line, row
from tandem.cli.explain import lines
from tandem.errors import NotFoundError, TandemError

_STATE = HEADER.index("STATE")


class Source(Protocol):
    """The methods needed of a `tandem.Client`; they block, and may raise any TandemError."""

    def jobs(self) -> list[Job]:
        """The present jobs."""

    def gpus(self) -> list[Gpu]:
        """The GPUs of this machine."""

    def explain(self, name: str) -> Explanation:
        """Tell why a job runs or waits."""

    def pause(self, name: str) -> Job:
        """Hold a job."""

    def resume(self, name: str) -> Job:
        """Let a job continue."""


class Terminal(LinuxDriver):
    """Textual's driver, except that typed bytes that are not UTF-8 do not end it."""

    def run_input_thread(self) -> None:
        """Read keys until the end, dropping what was read together with invalid bytes."""
        while True:
            try:
                return super().run_input_thread()
            except UnicodeDecodeError:
                continue


class Top(App[bool]):
    """The app of `tandem top`; `run` returns at its end, with True if it was ended by Ctrl-C."""

    CSS = """
    #gpus { height: auto; max-height: 20%; padding: 0 1; }
    #jobs { height: 1fr; }
    #why { height: auto; max-height: 35%; padding: 0 1; border-top: solid $primary; }
    #said { height: auto; padding: 0 1; color: $error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("p", "pause", "Pause"),
        ("r", "resume", "Resume"),
        ("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),  # textual's key to copy text
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, source: Source, *, interval_s: float, is_readonly: bool) -> None:
        super().__init__(driver_class=Terminal)
        self._source = source
        self._interval_s = interval_s
        self._is_readonly = is_readonly
        self._is_looking = False

    def compose(self) -> ComposeResult:
        """Lay out the view from top to bottom."""
        yield Static(id="gpus", markup=False)
        yield DataTable[Text](id="jobs", cursor_type="row", zebra_stripes=True)
        yield Static(id="why", markup=False)
        yield Static(id="said", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start polling the daemon."""
        for name in HEADER:
            self._table.add_column(name, key=name)
        self._table.focus()
        self.set_interval(self._interval_s, self.look)
        self.look()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Disable keys that change anything in a read-only view."""
        return not (self._is_readonly and action in ("pause", "resume"))

    def on_data_table_row_highlighted(self) -> None:
        """Ask the daemon at once when another job is selected."""
        self.look()

    def action_interrupt(self) -> None:
        """End the view."""
        self.exit(result=True)

    def action_pause(self) -> None:
        """Hold the selected job."""
        self._change(self._source.pause)

    def action_resume(self) -> None:
        """Let the selected job continue."""
        self._change(self._source.resume)

    def look(self) -> None:
        """Query the daemon, unless the previous query is still unanswered."""
        if not self._is_looking:
            self._is_looking = True
            self._ask(self._chosen)

    @work(thread=True)
    def _ask(self, chosen: str | None) -> None:
        try:
            jobs, gpus = tuple(self._source.jobs()), tuple(self._source.gpus())
            why = self._why(chosen) if chosen in {job.name for job in jobs} else ()
        except TandemError as exc:
            self.call_from_thread(self._fail, str(exc))
        else:
            seen = Seen(jobs=jobs, gpus=gpus, now_ns=time.time_ns())
            self.call_from_thread(self._show, seen, why)

    def _why(self, name: str | None) -> tuple[str, ...]:
        try:
            return tuple(lines(self._source.explain(name or "")))
        except NotFoundError:  # it has ended meanwhile
            return ()

    @work(thread=True)
    def _change(self, change: Callable[[str], Job]) -> None:
        if (name := self._chosen) is None:
            return
        try:
            change(name)
        except TandemError as exc:
            self.call_from_thread(self._fail, str(exc))
        self.call_from_thread(self.look)

    def _fail(self, text: str) -> None:
        self._is_looking = False
        self._static("said").update(printable(text))

    def _show(self, seen: Seen, why: tuple[str, ...]) -> None:
        self._is_looking = False
        self._static("said").update("")
        gpus = [printable(gpu_line(gpu, seen.jobs)) for gpu in seen.gpus]
        self._static("gpus").update("\n".join(gpus))
        self._static("why").update("\n".join(map(printable, why)))
        self._fill({job.name: row(job, now_ns=seen.now_ns) for job in seen.jobs})

    def _fill(self, rows: dict[str, tuple[str, ...]]) -> None:
        table = self._table
        known = {str(key.value) for key in table.rows}
        for name in known - rows.keys():
            table.remove_row(name)
        for name, cells in rows.items():
            shown = [_cell(place, cell) for place, cell in enumerate(cells)]
            if name not in known:
                table.add_row(*shown, key=name)
                continue
            for column, cell in zip(HEADER, shown, strict=True):
                if table.get_cell(name, column) != cell:
                    table.update_cell(name, column, cell, update_width=True)

    @property
    def _chosen(self) -> str | None:
        table = self._table
        if not table.is_valid_row_index(table.cursor_row):
            return None
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#jobs", DataTable)

    def _static(self, name: str) -> Static:
        return self.query_one(f"#{name}", Static)


def _cell(place: int, text: str) -> Text:
    style = COLOURS.get(text, "") if place == _STATE else ""
    return Text(
        printable(text), style=style, justify="right" if HEADER[place] in FIGURES else "left"
    )
