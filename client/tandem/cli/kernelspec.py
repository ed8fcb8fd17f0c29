"""`tandem kernelspec`."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from tandem import _kernelspecs, _launch, _paths
from tandem.cli._defaults import Requesting
from tandem.cli._output import json_option, print_json, print_table
from tandem.cli._parsed import refuse_taken_back
from tandem.cli._requests import request_of, request_options
from tandem.errors import UsageError

HEADER = ("NAME", "DISPLAY NAME", "REQUESTS", "PATH")


@click.group()
def kernelspec() -> None:
    """Have notebooks share the GPU: kernels of Jupyter that start through `tandem run`.

    \b
    Examples:
      tandem kernelspec install -m 10GiB --swappable
      tandem kernelspec list
    """


@kernelspec.command(cls=Requesting)
@request_options
@click.option("--name", default="tandem-python3", help="What Jupyter calls it.", show_default=True)
@click.option(
    "--display-name",
    default="Python 3 (shared GPU)",
    help="What people see.",
    show_default=True,
)
@click.option("--user", is_flag=True, help="For this user, which it is anyway.")
@click.option("--prefix", type=click.Path(path_type=Path), help="Below PREFIX/share/jupyter.")
@click.option("--sys-prefix", is_flag=True, help="For this Python environment.")
@click.option("--replace", "replaces", is_flag=True, help="Replace one by the same name.")
def install(
    name: str,
    display_name: str,
    user: bool,
    prefix: Path | None,
    sys_prefix: bool,
    replaces: bool,
    **options: Any,
) -> None:
    """Install a kernel of this Python interpreter, which has to have ipykernel.

    Each notebook is then a job, named as the kernel, from its start: with its limits, whatever it
    starts, and in `tandem ps`. Interrupts and restarts are as ever. Without a daemon it runs
    unshared. With --swappable --idle-release 60s the memory of a notebook that was idle for so long
    is others' until its next cell that uses the GPU.

    \b
    Examples:
      tandem kernelspec install -p normal -m 10GiB --swappable --idle-release 60s
      tandem kernelspec install --swappable --sys-prefix
      tandem kernelspec install --name big -m 80% --display-name "Python 3 (80% of a GPU)"
    """
    refuse_taken_back(click.get_current_context())
    if user + (prefix is not None) + sys_prefix > 1:
        raise UsageError("say one of --user, --prefix and --sys-prefix")
    folder = _kernelspecs.user_folder(os.environ)
    if sys_prefix or prefix is not None:
        folder = _kernelspecs.prefix_folder(prefix or Path(sys.prefix))
    variables = _paths.named(os.environ)
    if options["return_memory"]:
        variables["TANDEM_RETURN_MEMORY"] = "1"
    request = request_of(options | {"name": name})
    spec = _kernelspecs.content(
        request,
        display_name=display_name,
        gpu=options["gpu"],
        variables=variables,
    )
    place = _kernelspecs.install(folder, name, spec, replace=replaces)
    click.echo(f"installed {place}")
    _launch.foretell(request, os.environ, uid=os.geteuid(), gpu=options["gpu"])


@kernelspec.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the kernels that were installed so.

    \b
    Examples:
      tandem kernelspec list --json
    """
    found = _kernelspecs.installed(os.environ)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            spec.name,
            spec.display_name,
            " ".join(f"{k}={v}" for k, v in spec.environment.items()),
            spec.path,
        )
        for spec in found
    ]
    print_table(HEADER, rows)


@kernelspec.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def remove(names: tuple[str, ...]) -> None:
    """Remove kernels that were installed so, and no others.

    \b
    Examples:
      tandem kernelspec remove tandem-python3
    """
    for name in names:
        for place in _kernelspecs.remove(name, os.environ):
            click.echo(f"removed {place}")
