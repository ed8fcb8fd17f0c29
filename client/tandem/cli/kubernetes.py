"""`tandem kubernetes`."""

from pathlib import Path

import click

from tandem.cli._output import from_extra
from tandem.cli._parsed import NumberRange


@click.group()
def kubernetes() -> None:
    """Have pods of Kubernetes share the GPUs of this node.

    \b
    Examples:
      tandem kubernetes plugin
    """


@kubernetes.command()
@click.option(
    "--slices",
    type=click.IntRange(1, 128),
    default=8,
    show_default=True,
    help="Slices of each GPU: as many containers may share it.",
)
@click.option(
    "--kubelet",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/device-plugins",
    show_default=True,
    help="The kubelet's folder of plugins.",
)
@click.option(
    "--files",
    type=click.Path(path_type=Path),
    help="Folder of the node, seen here by the same path, to copy the library to; needed where "
    "this runs in a container.",
)
@click.option(
    "--cdi",
    is_flag=True,
    help="Name devices of CDI, NVIDIA's and those of `tandem cdi generate`, instead of mounts.",
)
@click.option(
    "--interval",
    type=NumberRange(min=0.1, max=60),
    default=2,
    show_default=True,
    help="Seconds between two looks at the daemon and the kubelet.",
)
def plugin(*, slices: int, kubelet: Path, files: Path | None, cdi: bool, interval: float) -> None:
    """Be a device plugin: the kubelet counts slices of the GPUs, and gives them to containers.

    Each GPU that the daemon shares out is so many tandem.dev/slice. A container that asks for two
    of eight has the library preloaded, sees the daemon's sockets and that GPU, and each program of
    it may have two eighths of the memory. Slices of one container are of one GPU where one has
    room. What else it asks for it says by its own variables, as TANDEM_PRIORITY.

    Slices of a GPU that drains, or of all while no daemon answers, are not given out; what has them
    goes on. Ends by SIGTERM or Ctrl-C, with 0. Needs the extra [k8s].

    \b
    Examples:
      tandem kubernetes plugin
      tandem kubernetes plugin --slices 4 --files /var/lib/tandem-kubernetes
    """
    with from_extra("k8s"):
        from tandem.kubernetes.plugin import Settings, run
    run(
        Settings(
            slices=slices,
            kubelet=kubelet.absolute(),
            files=files and files.absolute(),
            cdi=cdi,
            interval_s=interval,
        ),
        say=_say,
    )


def _say(line: str) -> None:
    click.echo(f"tandem: {line}", err=True)
