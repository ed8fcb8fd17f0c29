"""`tandem kubernetes`."""

from pathlib import Path

import click

from tandem.cli._group import Group
from tandem.cli._output import from_extra
from tandem.cli._parsed import NumberRange


@click.group(cls=Group)
def kubernetes() -> None:
    """Let Kubernetes pods share the GPUs of this node.

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
    help="Slices per GPU, which is also how many containers may share it.",
)
@click.option(
    "--kubelet",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/device-plugins",
    show_default=True,
    help="The kubelet's directory of device plugins.",
)
@click.option(
    "--files",
    type=click.Path(path_type=Path),
    help="Directory of the node, with the same path here, to copy the library to; needed if "
    "this runs in a container.",
)
@click.option(
    "--cdi",
    is_flag=True,
    help="Use CDI devices, NVIDIA's and those of `tandem cdi generate`, instead of mounts.",
)
@click.option(
    "--interval",
    type=NumberRange(min=0.1, max=60),
    default=2,
    show_default=True,
    help="Seconds between two checks of the daemon and the kubelet.",
)
def plugin(*, slices: int, kubelet: Path, files: Path | None, cdi: bool, interval: float) -> None:
    """Run a device plugin: the kubelet counts slices of the GPUs and gives them to containers.

    Each GPU that the daemon manages is divided into --slices of the resource tandem.dev/slice. A
    container that asks for two of eight has the library preloaded and sees the daemon's sockets and
    that GPU; each of its programs may use two eighths of the memory. The slices of a container come
    from one GPU if one has room. Whatever else it asks for, it says by variables of its own, such
    as TANDEM_PRIORITY.

    Slices of a GPU that drains are not given out, and none at all while no daemon answers;
    containers that have slices continue. SIGTERM or Ctrl-C ends the plugin, with 0. It needs the
    extra [k8s].

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
