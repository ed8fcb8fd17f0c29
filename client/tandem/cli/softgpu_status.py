"""`tandem softgpu status`."""

import json
import time
from pathlib import Path
from typing import Any

import click

from tandem import softgpu as device
from tandem._text import printable
from tandem.cli._output import json_option, on_terminal, print_table
from tandem.cli._parsed import NumberRange
from tandem.errors import UnavailableError
from tandem.units import format_bytes, format_duration

HEADER = ("PID", "MEMORY", "CONTEXTS", "STREAMS", "QUEUED", "DONE", "DONE/s", "NAME")
_CLEAR = "\033[H\033[2J"


@click.command()
@json_option
@click.option(
    "-w",
    "--watch",
    "watch_s",
    is_flag=False,
    flag_value=2.0,
    type=NumberRange(min=0.1, max=3600),
    metavar="[SECONDS]",
    help="Repeat every SECONDS (0.1 to 3600; 2 by default) until Ctrl-C.",
)
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Runtime directory.")
def status(*, as_json: bool, watch_s: float | None, folder: Path | None) -> None:
    """Show the device process: its clock, memory and programs.

    With --watch, a terminal shows one table that is kept up to date; any other output gets a block,
    or with --json a line, per round. It ends when the device does.

    \b
    Examples:
      tandem softgpu status
      tandem softgpu status --watch
      tandem softgpu status --watch 0.5 --json | jq .ops_done
    """
    from tandem.softgpu._query import device_status

    place = folder or device.runtime_folder()
    text = device_status(place)
    before: dict[str, Any] | None = None
    while True:
        found = json.loads(text)
        if as_json:
            click.echo(text)
        else:
            if watch_s is not None and on_terminal():
                click.echo(_CLEAR, nl=False)
            _show(found, before)
        if watch_s is None:
            return
        if not as_json and not on_terminal():
            click.echo()
        time.sleep(watch_s)
        before = found
        try:
            text = device_status(place)
        except UnavailableError:
            click.echo("the device process has ended", err=True)
            return


def _show(found: dict[str, Any], before: dict[str, Any] | None) -> None:
    clock = f"{found['clock']} clock, up {format_duration(found['uptime_ns'])}"
    if found["clock"] == "virtual":
        clock = f"virtual clock, {format_duration(found['now_ns'])} since its start"
    click.echo(f"{found['profile']}, {clock}, {found['mode']} mode")
    if found.get("timeline") == "incomplete":
        click.echo("the timeline is incomplete: its disk is full, see softgpu.log")
    for gpu in found["devices"]:
        used, total = format_bytes(gpu["used_bytes"]), format_bytes(gpu["total_bytes"])
        busy = f"{gpu['gpu_utilization_ratio'] * 100:.0f}"
        state = (
            "LOST: every call fails until it is restarted" if gpu.get("lost") else f"{busy} % busy"
        )
        click.echo(f"gpu {gpu['index']}: {gpu['name']}, {used} / {total}, {state}")
    rates = _rates(found, before)
    rows = [_row(c, rates.get(c["id"])) for c in found["clients"] if c["role"] != "query"]
    if rows:
        print_table(HEADER, rows, right=HEADER[:-1])
    else:
        click.echo("no programs")
    if found["truncated"]:
        click.echo(f"{found['client_count']} clients are connected; not all are shown")


def _rates(found: dict[str, Any], before: dict[str, Any] | None) -> dict[int, float]:
    """Compute the operations done per second of real time, by client."""
    if before is None or found["uptime_ns"] <= before["uptime_ns"]:
        return {}
    elapsed_s = (found["uptime_ns"] - before["uptime_ns"]) / 1e9
    done = {c["id"]: c["ops_done"] for c in before["clients"]}
    return {
        c["id"]: (c["ops_done"] - done[c["id"]]) / elapsed_s
        for c in found["clients"]
        if c["id"] in done
    }


def _row(client: dict[str, Any], rate: float | None) -> tuple[str, ...]:
    return (
        str(client["pid"]),
        format_bytes(client["memory_bytes"]),
        *(str(client[key]) for key in ("contexts", "streams", "ops_queued", "ops_done")),
        "-" if rate is None else f"{rate:,.0f}",
        printable(client["name"]) or "-",
    )
