"""`tandem kernelspec`."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from tandem import _kernelspecs, _launch, _paths
from tandem.cli._defaults import Requesting
from tandem.cli._group import Group
from tandem.cli._output import json_option, print_json, print_table
from tandem.cli._parsed import refuse_taken_back
from tandem.cli._requests import request_of, request_options
from tandem.errors import UsageError

HEADER = ("NAME", "DISPLAY NAME", "REQUESTS", "PATH")


@click.group(cls=Group)
def kernelspec() -> None:
    """Let notebooks share the GPU: Jupyter kernels that start through `tandem run`.

    \b
    Examples:
      tandem kernelspec install -m 10GiB --swappable
      tandem kernelspec list
    """


@kernelspec.command(cls=Requesting)
@request_options
@click.option(
    "--name", default="tandem-python3", help="Name of the kernel in Jupyter.", show_default=True
)
@click.option(
    "--display-name",
    default="Python 3 (shared GPU)",
    help="Name that people see.",
    show_default=True,
)
@click.option("--user", is_flag=True, help="Install for this user; the default.")
@click.option(
    "--prefix", type=click.Path(path_type=Path), help="Install below PREFIX/share/jupyter."
)
@click.option("--sys-prefix", is_flag=True, help="Install for this Python environment.")
@click.option("--replace", "replaces", is_flag=True, help="Replace a kernel of the same name.")
def install(
    name: str,
    display_name: str,
    user: bool,
    prefix: Path | None,
    sys_prefix: bool,
    replaces: bool,
    **options: Any,
) -> None:
    """Install a kernel of this Python interpreter, which needs ipykernel.

    Each notebook is then a job from its start, named after the kernel: `tandem ps` lists it, and
    its limits also cover whatever it starts. Interrupts and restarts work as usual. Without a
    daemon, notebooks run unshared. With --swappable --idle-release 60s, a notebook that was idle
    for that long gives its memory to others until its next cell that uses the GPU.

    \b
    Examples:
      tandem kernelspec install -p normal -m 10GiB --swappable --idle-release 60s
      tandem kernelspec install --swappable --sys-prefix
      tandem kernelspec install --name big -m 80% --display-name "Python 3 (80% of a GPU)"
    """
    refuse_taken_back(click.get_current_context())
    if user + (prefix is not None) + sys_prefix > 1:
        raise UsageError("give only one of --user, --prefix and --sys-prefix")
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
    """List the kernels installed by `tandem kernelspec install`.

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
    """Remove kernels that `tandem kernelspec install` installed, and no others.

    \b
    Examples:
      tandem kernelspec remove tandem-python3
    """
    for name in names:
        for place in _kernelspecs.remove(name, os.environ):
            click.echo(f"removed {place}")
