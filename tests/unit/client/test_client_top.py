"""`tandem top`, live and once."""

import asyncio
import io
import socket
import sys
import threading
from dataclasses import replace

import pytest
from test_client_output import GIB, job

from tandem._results import Explanation, Gpu
from tandem.cli import __main__ as cli
from tandem.cli import top as top_command
from tandem.cli._top_rows import HEADER, row
from tandem.cli.top import parse_interval
from tandem.errors import NotFoundError, UnavailableError, UsageError
from tandem.top.app import Terminal, Top

GPU = Gpu(
    index=0,
    uuid="GPU-0",
    product_name="Tandem Software GPU",
    mode="time",
    memory_total_bytes=80 * GIB,
    memory_used_bytes=60 * GIB,
    sm_count=8,
    busy_ratio=0.5,
    name="0",
    software=True,
)
WAITER = job(
    name="j-2",
    display_name="train [bold]",
    state="waiting",
    swapped_bytes=6 * GIB,
    memory_wait_bytes=2 * GIB,
    memory_wait_place=1,
)


class Machine:
    """A daemon's answers, as far as `top` asks; a test changes them."""

    def __init__(self, *jobs):
        self.rows = {one.name: one for one in jobs}
        self.asked = []
        self.error = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def jobs(self):
        if self.error:
            raise self.error
        return list(self.rows.values())

    def gpus(self):
        return [GPU]

    def explain(self, name):
        if name not in self.rows:
            raise NotFoundError("it has ended")
        return Explanation(
            job=name, summary=f"why {name}", lines=(), mode="time", policy="", waits=(), story=()
        )

    def pause(self, name):
        self.asked.append(("pause", name))
        self.rows[name] = replace(self.rows[name], state="paused")

    def resume(self, name):
        self.asked.append(("resume", name))
        self.rows[name] = replace(self.rows[name], state="running")


@pytest.fixture
def machine():
    return Machine(job(), WAITER)


def watch(machine, scenario, *, size=(200, 40), **options):
    """Runs the scenario in the live view, without a terminal."""

    async def run():
        view = Top(machine, interval_s=3600, **({"is_readonly": False} | options))
        async with view.run_test(size=size) as pilot:
            await settled(view, pilot)
            await scenario(view, pilot)

    asyncio.run(run())


async def settled(view, pilot):
    """Waits until every question is answered and shown."""
    await view.workers.wait_for_complete()
    await pilot.pause()
    await view.workers.wait_for_complete()
    await pilot.pause()


async def looked(view, pilot):
    view.look()
    await settled(view, pilot)


def shown(view):
    table = view.query_one("#jobs")
    return {
        str(key.value): dict(zip(HEADER, map(str, table.get_row(key)), strict=True))
        for key in table.rows
    }


def text(view, name):
    return str(view.query_one(f"#{name}").render())


def test_memory_is_told_apart():
    cells = dict(zip(HEADER, row(WAITER, now_ns=10**18), strict=True))

    parts = ("RESIDENT", "SWAPPED", "QUOTA", "WAITING")
    assert [cells[name] for name in parts] == ["38 GiB", "6 GiB", "40 GiB", "2 GiB #1"]
    assert "MEM(res/quota)" not in cells


@pytest.mark.parametrize(("group", "cell"), [("slurm:17.0", "slurm:17.0"), ("", "-")])
def test_the_group_of_a_job_is_shown(group, cell):
    cells = dict(zip(HEADER, row(replace(WAITER, group=group), now_ns=10**18), strict=True))

    assert cells["GROUP"] == cell


def test_the_live_view_shows_jobs_gpus_and_why(machine):
    async def scenario(view, pilot):
        assert list(shown(view)) == ["j-7f3a", "j-2"]
        assert shown(view)["j-2"]["NAME"] == "train [bold]"  # not interpreted as markup
        assert shown(view)["j-2"]["WAITING"] == "2 GiB #1"
        assert "busy 50%, memory 60 GiB of 80 GiB, on the host 6 GiB" in text(view, "gpus")
        assert "why j-7f3a" in text(view, "why")
        await pilot.press("down")
        await settled(view, pilot)
        assert "why j-2" in text(view, "why")

    watch(machine, scenario)


def test_rows_follow_the_jobs_and_the_choice_stays(machine):
    async def scenario(view, pilot):
        await pilot.press("down")
        await settled(view, pilot)
        machine.rows = {"j-2": replace(WAITER, state="running"), "j-3": job(name="j-3")}
        await looked(view, pilot)
        assert {name: cells["STATE"] for name, cells in shown(view).items()} == {
            "j-2": "running",
            "j-3": "running",
        }
        assert "why j-2" in text(view, "why")

    watch(machine, scenario)


def test_keys_pause_and_resume_the_chosen_job(machine):
    async def scenario(view, pilot):
        for key, state in (("p", "paused"), ("r", "running")):
            await pilot.press(key)
            await settled(view, pilot)
            assert shown(view)["j-7f3a"]["STATE"] == state

    watch(machine, scenario)

    assert machine.asked == [("pause", "j-7f3a"), ("resume", "j-7f3a")]


def test_read_only_has_no_keys_that_change_anything(machine):
    async def scenario(view, pilot):
        await pilot.press("p", "r")
        await settled(view, pilot)

    watch(machine, scenario, is_readonly=True)

    assert machine.asked == []


def test_a_daemon_that_goes_away_is_said_and_what_was_known_stays(machine):
    async def scenario(view, pilot):
        machine.error = UnavailableError("no daemon answers")
        await looked(view, pilot)
        assert "no daemon answers" in text(view, "said")
        assert len(shown(view)) == 2
        machine.error = None
        await looked(view, pilot)
        assert "no daemon answers" not in text(view, "said")

    watch(machine, scenario)


def test_ctrl_c_ends_it(machine):
    ended = []

    async def scenario(view, pilot):
        await pilot.press("ctrl+c")
        await pilot.pause()
        ended.append(view.return_value)

    watch(machine, scenario)

    assert ended == [True]


@pytest.fixture
def terminal(monkeypatch, machine):
    machine.status = lambda: None
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(top_command, "on_terminal", lambda: True)
    monkeypatch.setattr(top_command, "open_client", lambda: machine)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("is_interrupted", "code"), [(True, 130), (None, 0)])
def test_only_ctrl_c_is_an_interruption(monkeypatch, capsys, is_interrupted, code):
    monkeypatch.setattr(Top, "run", lambda view: view.exit(is_interrupted) or is_interrupted)

    assert run(monkeypatch, capsys) == (code, "", "")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("end", [Top.panic, lambda view: view.exit(return_code=1)])
def test_a_view_that_fails_is_no_success(monkeypatch, capsys, end):
    monkeypatch.setattr(Top, "run", end)

    code, out, err = run(monkeypatch, capsys)

    assert (code, out) == (70, "")
    assert err.startswith("error: the view failed")


def test_what_is_typed_that_is_not_utf_8_is_passed_over():
    heard = []
    terminal = object.__new__(Terminal)
    terminal.exit_event, terminal._debug = threading.Event(), False

    def hear(event):
        heard.append(event.key)
        terminal.exit_event.set()

    terminal.process_message = hear
    keyboard, screen = socket.socketpair(type=socket.SOCK_SEQPACKET)  # one read per packet
    with keyboard, screen:
        terminal.fileno = screen.fileno()
        keyboard.send(b"\xff")
        keyboard.send(b"q")
        terminal.run_input_thread()

    assert heard == ["q"]


def test_a_small_terminal_has_room_for_jobs(machine):
    reasons = tuple(f"reason {number}" for number in range(20))
    tell = machine.explain
    machine.explain = lambda name: replace(tell(name), lines=reasons)

    async def scenario(view, pilot):
        assert view.query_one("#jobs").size.height >= 2  # the header and one job

    watch(machine, scenario, size=(40, 10))


def test_without_any_job_there_is_nothing_to_pause():
    machine = Machine()

    async def scenario(view, pilot):
        await pilot.press("p")
        await settled(view, pilot)
        assert shown(view) == {}

    watch(machine, scenario)

    assert machine.asked == []


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["tandem", "top", *words])
    code = cli.main()
    return code, *capsys.readouterr()


def test_once_prints_text_without_the_extra(monkeypatch, capsys, machine):
    monkeypatch.setattr(top_command, "open_client", lambda: machine)
    monkeypatch.setitem(sys.modules, "tandem.top.app", None)

    code, out, err = run(monkeypatch, capsys, "--once")

    assert (code, err) == (0, "")
    gpu, header, first, second = out.splitlines()
    assert gpu.startswith("gpu 0 Tandem Software GPU, mode time: busy 50%")
    assert header.split() == list(HEADER)
    assert first.split()[:2] == ["j-7f3a", "llama"]
    assert "2 GiB #1" in second


def test_into_a_pipe_it_says_what_to_take(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys)

    assert (code, out) == (2, "")
    assert "needs a terminal; `tandem top --once` works without one" in err


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(top_command, "on_terminal", lambda: True)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.delitem(sys.modules, "tandem.top.app")
    monkeypatch.setitem(sys.modules, "textual", None)

    code, _, err = run(monkeypatch, capsys)

    assert code == 4
    assert "tandem top needs textual, which is not installed" in err
    assert "pip install 'gpu-tandem[top]'" in err


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "1e9"])
def test_intervals_have_limits(text):
    with pytest.raises(UsageError, match="and 3600 seconds; write 2 or"):
        parse_interval(text, what="--interval")


def test_an_interval_is_in_seconds():
    assert parse_interval("0.5") == 0.5
