"""`tandem version`."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version

import click

OPTIONAL = ("grpcio", "protobuf", "nvidia-ml-py", "cuda-bindings")


@click.command("version")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version_(as_json: bool) -> None:
    """Print the versions of Tandem and of its dependencies.

    \b
    Examples:
      tandem version
      tandem version --json
    """
    found = {name: _installed(name) for name in ("gpu-tandem", *OPTIONAL)}
    found["python"] = platform.python_version()
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, text in found.items():
        click.echo(f"{name:14} {text or 'not installed'}")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
