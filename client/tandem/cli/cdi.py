"""`tandem cdi`."""

import json
import os
from pathlib import Path
from typing import Any

import click

from tandem import _cdi
from tandem.cli._defaults import Requesting
from tandem.cli._files import STANDARD_OUTPUT, written
from tandem.cli._group import Group
from tandem.cli._requests import request_of, request_options
from tandem.errors import UsageError


@click.group(cls=Group)
def cdi() -> None:
    """Let containers share the GPU, through CDI devices for podman and Docker.

    \b
    Examples:
      tandem cdi generate -o /etc/cdi/tandem.json
      podman run --device nvidia.com/gpu=0 --device tandem.dev/gpu=batch IMAGE python train.py
    """


@cdi.command(cls=Requesting)
@request_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=STANDARD_OUTPUT,
    help="File to write, such as /etc/cdi/tandem.json; - is standard output.",
)
def generate(output: Path, **options: Any) -> None:
    """Write a specification of the Container Device Interface.

    Its devices are tandem.dev/gpu=latency, =normal and =batch, which request that priority, and
    =any, which requests that of -p or none. In a container with one of them, a file
    /etc/ld.so.preload preloads the library, and the daemon's sockets are visible. The container
    must be given the GPU as well, by --device nvidia.com/gpu=0 or --gpus. All other options apply
    to every device; a container requests more by -e, such as -e TANDEM_NAME=server.

    Each process that uses the GPU is a job of its own, as with `tandem env`, so -m limits each
    process separately. Write the file again after Tandem or the daemon's directory has moved.

    \b
    Examples:
      tandem cdi generate -o /etc/cdi/tandem.json
      tandem cdi generate -m 20GiB --swappable > tandem.json
      docker run --gpus all --device tandem.dev/gpu=latency -e TANDEM_SLO=p99=50ms IMAGE
    """
    if options["gpu"]:
        raise UsageError(
            f"--gpu {options['gpu']!r} means nothing in a container, where GPUs are renumbered; "
            "choose it by --device nvidia.com/gpu=... or --gpus when the container starts"
        )
    spec = _cdi.specification(
        request_of(options | {"name": ""}),
        os.environ,
        uid=os.geteuid(),
        return_memory=options["return_memory"],
    )
    with written(output) as file:
        file.write(json.dumps(spec, indent=2) + "\n")
