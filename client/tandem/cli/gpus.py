"""`tandem gpus`."""

from collections.abc import Sequence

import click

from tandem._results import Gpu
from tandem._text import printable
from tandem.cli._output import json_option, open_client, print_json, print_table
from tandem.units import format_bytes

HEADER = ("GPU", "NAME", "MODE", "SMS", "BUSY%", "MEM(used/total)", "UUID")


@click.command()
@json_option
def gpus(as_json: bool) -> None:
    """List the GPUs that the daemon shares out.

    MODE says what runs together: in `time` jobs take turns, in the others their kernels overlap.

    \b
    Examples:
      tandem gpus
      tandem gpus --json
    """
    with open_client() as client:
        found = client.gpus()
    if as_json:
        print_json(found)
    else:
        show(found)


def show(found: Sequence[Gpu]) -> None:
    """The table of GPUs."""
    print_table(HEADER, [_row(gpu) for gpu in found], right=("GPU", "SMS", "BUSY%"))
    for gpu in found:
        if gpu.sets is not None and gpu.sets.under_way:
            click.echo(f"gpu {gpu.name}: mode mps+green is being proved, until then it is in mps")
        elif gpu.not_had:
            click.echo(f"gpu {gpu.name}: {printable(gpu.not_had)}")
        if count := gpu.unmanaged_processes:
            they = f"{count} processes compute" if count > 1 else "1 process computes"
            click.echo(f"gpu {gpu.name}: {they} without this daemon; see `tandem doctor`")


def _row(gpu: Gpu) -> tuple[str, ...]:
    used, total = format_bytes(gpu.memory_used_bytes), format_bytes(gpu.memory_total_bytes)
    return (
        gpu.name,
        gpu.product_name + (" (software)" if gpu.software else ""),
        gpu.mode or "-",
        str(gpu.sm_count),
        f"{gpu.busy_ratio * 100:.0f}",
        f"{used} / {total}",
        gpu.uuid,
    )
