"""`tandem drain`."""

import click

from tandem.cli import _completing
from tandem.cli._output import json_option, open_client, print_json


@click.command()
@click.option("--undo", is_flag=True, help="Allow jobs to be started there again.")
@click.argument("gpu", shell_complete=_completing.gpus)
@json_option
def drain(*, gpu: str, undo: bool, as_json: bool) -> None:
    """Stop starting jobs on a GPU, for example before maintenance; for admins.

    `tandem run` is refused if it names that GPU with --gpu, or if there is no other: it ends with
    75 if the job must not wait (--no-wait), else with 125. Jobs that run there continue until they
    end; `tandem ps` lists them. The GPU stays drained until --undo, even if the daemon restarts.

    The daemon starts no programs and chooses no GPU for them: if there are other GPUs, a job that
    names none may still use this one, and so may programs that start without `tandem run`.

    \b
    Examples:
      tandem drain 0
      tandem drain --undo 0
      tandem gpus
    """
    with open_client() as client:
        found = client.drain_gpu(gpu, undo=undo)
    if as_json:
        print_json(found)
    elif found.draining:
        click.echo(f"gpu {found.name}: draining, no job is started there")
    else:
        click.echo(f"gpu {found.name}: jobs are started there")
