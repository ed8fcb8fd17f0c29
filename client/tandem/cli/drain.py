"""`tandem drain`."""

import click

from tandem.cli import _completing
from tandem.cli._output import json_option, open_client, print_json


@click.command()
@click.option("--undo", is_flag=True, help="Have jobs started there again.")
@click.argument("gpu", shell_complete=_completing.gpus)
@json_option
def drain(*, gpu: str, undo: bool, as_json: bool) -> None:
    """Have no job started on a GPU any more; for admins.

    As before maintenance. `tandem run` is refused where it names that GPU with --gpu, or where
    there is no other: it ends with 75 if the job is not to wait (--no-wait), else with 125. Jobs
    that run there go on until they end, `tandem ps` lists them. It is so until --undo, also after a
    restart of the daemon.

    The daemon starts no programs and chooses no GPU for them: a job that names none may still take
    this one where there are others, and so do programs that start without `tandem run`.

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
