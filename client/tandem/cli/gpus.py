"""`tandem gpus`."""

from collections.abc import Sequence

import click

from tandem._results import Gpu
from tandem._text import printable
from tandem.cli._columns import Column, check_form, column, column_options, print_items
from tandem.cli._output import json_option, open_client, print_json
from tandem.units import format_bytes


def _memory(gpu: Gpu) -> str:
    return f"{format_bytes(gpu.memory_used_bytes)} / {format_bytes(gpu.memory_total_bytes)}"


# Reported below the table instead, and only if there is something to report.
_DRAINING, _RESERVED = "draining", "reserved"

# Keyed by the names that `-o` takes.
COLUMNS: dict[str, Column[Gpu]] = {
    "gpu": column("GPU", lambda gpu: gpu.name, "name", is_figure=True),
    "name": column(
        "NAME",
        lambda gpu: gpu.product_name + (" (software)" if gpu.software else ""),
        *("product_name", "software"),
    ),
    "mode": column("MODE", lambda gpu: gpu.mode or "-", "mode"),
    "sms": column("SMS", lambda gpu: str(gpu.sm_count), "sm_count", is_figure=True),
    "busy": column(
        "BUSY%", lambda gpu: f"{gpu.busy_ratio * 100:.0f}", "busy_ratio", is_figure=True
    ),
    "mem": column("MEM(used/total)", _memory, "memory_used_bytes", "memory_total_bytes"),
    "uuid": column("UUID", lambda gpu: gpu.uuid, "uuid"),
    _DRAINING: column("DRAINING", lambda gpu: "yes" if gpu.draining else "no", "draining"),
    _RESERVED: column(
        "RESERVED",
        lambda gpu: format_bytes(gpu.memory_reserved_bytes),
        "memory_reserved_bytes",
        is_figure=True,
    ),
}


@click.command()
@column_options(COLUMNS)
@json_option
def gpus(chosen: list[str] | None, form: str, as_json: bool) -> None:
    """List the GPUs that the daemon manages.

    MODE says how jobs share the GPU: in `time` they take turns, in the other modes their kernels
    overlap. Notes below the table say which GPUs are draining (`tandem drain`), and how much of
    their memory is kept free of all jobs (`reserve_memory` in the daemon's configuration).

    \b
    Examples:
      tandem gpus
      tandem gpus -o gpu,mode,busy
      tandem gpus --format csv
    """
    check_form(chosen, form, as_json=as_json)
    with open_client() as client:
        found = client.gpus()
    if as_json:
        print_json(found)
    elif chosen or form == "csv":
        print_items(found, [COLUMNS[name] for name in chosen or COLUMNS], form=form)
    else:
        show(found)


def show(found: Sequence[Gpu]) -> None:
    """Print the table of GPUs, and notes about them below it."""
    usual = [column for name, column in COLUMNS.items() if name not in (_DRAINING, _RESERVED)]
    print_items(found, usual, form="table")
    for gpu in found:
        if gpu.sets is not None and gpu.sets.under_way:
            click.echo(f"gpu {gpu.name}: mode mps+green is being proved; until then it is in mps")
        elif gpu.not_had:
            click.echo(f"gpu {gpu.name}: {printable(gpu.not_had)}")
        if gpu.draining:
            click.echo(f"gpu {gpu.name}: draining, no job is started there")
        if gpu.memory_reserved_bytes:
            kept_free = format_bytes(gpu.memory_reserved_bytes)
            click.echo(f"gpu {gpu.name}: {kept_free} of its memory are kept free of all jobs")
        if count := gpu.unmanaged_processes:
            they = f"{count} processes compute" if count > 1 else "1 process computes"
            click.echo(f"gpu {gpu.name}: {they} without this daemon; see `tandem doctor`")
