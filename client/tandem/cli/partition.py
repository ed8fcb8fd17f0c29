"""`tandem partition`."""

import sys
from collections.abc import Iterator, Sequence

import click

from tandem._results import GpuCut, JobPart, Partition
from tandem._text import printable
from tandem.cli._group import Group
from tandem.cli._output import json_option, open_client, print_json, print_table
from tandem.cli.partition_plan import plan, title_of
from tandem.errors import StateError, UsageError

_HEADER = ("JOB", "NAME", "CLASS", "SM", "HAS", "KNEE", "LIMIT", "FITS", "PREDICTED", "ITERATION")
_RIGHT = ("SM", "HAS", "KNEE", "LIMIT", "FITS", "PREDICTED", "ITERATION")


@click.group(cls=Group)
def partition() -> None:
    """Show or change how GPUs are divided among jobs.

    \b
    Examples:
      tandem partition show
      tandem partition plan
      tandem partition apply --mig 0=3g.71gb,2g.35gb
    """


partition.add_command(plan)


@partition.command()
@json_option
def show(*, as_json: bool) -> None:
    """Show how each GPU is divided, and how many SMs its jobs have use for.

    SM is what a job asks for, HAS how many SMs its kernels may use (- if that depends on the
    stream). Beyond KNEE each further SM gains less; LIMIT is how many SMs keep its --slo. FITS is
    what it would get by both, beside the other jobs, including SMs that no other job has use for;
    `rest` is what the others leave, and - means that the job cannot have a set of SMs while it
    runs. ITERATION is how long its iterations take, PREDICTED what was predicted for its number of
    SMs before it ran on them. Below each table: why FITS is that many, or what is not known of a
    job.

    \b
    Examples:
      tandem partition show
      tandem partition show --json | jq '.[].jobs[].scaling'
    """
    with open_client() as client:
        found = client.partitions()
    if as_json:
        print_json(found)
        return
    for one in found:
        _show(one)


def _show(found: Partition) -> None:
    click.echo(printable(title_of(found.gpu)))
    if found.jobs:
        print_table(_HEADER, [_row(job) for job in found.jobs], right=_RIGHT)
    for line in _notes(found.jobs):
        click.echo(printable(line))


def _row(job: JobPart) -> tuple[str, ...]:
    share = f" ({job.owed_ratio:.0%} of time)" if job.owed_ratio else ""
    return (
        job.job,
        job.display_name or "-",
        job.priority,
        job.asked.removesuffix(" SMs") or "-",
        f"{job.given_sms or '-'}{share}",
        f"{job.scaling.knee_sms}" if job.scaling else "-",
        f"{job.required_sms or '-'}",
        "-" if job.why_no_set else f"{job.proposed_sms or 'rest'}",
        _milliseconds(job.predicted_ns),
        _milliseconds(job.measured_ns),
    )


def _milliseconds(duration_ns: int | None) -> str:
    return f"{duration_ns / 1e6:.4g} ms" if duration_ns else "-"


def _notes(jobs: Sequence[JobPart]) -> Iterator[str]:
    for job in jobs:
        yield f"  {job.job}: {job.why}{_told(job)}"
        if job.why_no_set:
            yield f"  {job.job}: it has no set of SMs: {job.why_no_set}"


def _told(job: JobPart) -> str:
    curve = job.scaling
    if curve is None:
        return ""
    fitted = f", fitted with gamma {curve.gamma:.2f}" if curve.source == "probed" else ""
    return f" ({curve.source} from an iteration on {curve.recorded_sms} SMs{fitted})"


@partition.command()
@click.option(
    "--mig",
    "layout",
    required=True,
    metavar="GPU=PROFILE,...",
    help="Instances to cut a GPU into, e.g. 0=3g.71gb,2g.35gb; 0=off turns MIG off.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def apply(layout: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Cut a GPU into MIG instances; for admins, and only while nobody uses the GPU.

    Its previous instances are destroyed. If anything fails, they are created again.

    \b
    Examples:
      tandem partition apply --mig 0=3g.71gb,2g.35gb --dry-run
      tandem partition apply --mig 0=off --yes
      tandem partition apply --mig 0=7g.141gb --dry-run --json | jq '.created[].profile'
    """
    with open_client() as client:
        cut = client.cut_gpu(layout, dry_run=True)
        if not dry_run:
            _consent(layout, cut, yes=yes)
            cut = client.cut_gpu(layout)
    if as_json:
        print_json(cut)
    else:
        _show_cut(cut)


def _consent(layout: str, cut: GpuCut, *, yes: bool) -> None:
    if cut.users:
        gpu = layout.partition("=")[0]
        raise StateError(f"gpu {gpu} is used by {', '.join(cut.users)}; end them first")
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked here; look at --dry-run, then give --yes")
    _show_cut(cut, err=True)
    click.confirm("go on?", abort=True, err=True)


def _show_cut(cut: GpuCut, *, err: bool = False) -> None:
    """Print what is destroyed and created, one per line, and last the users in the way."""
    will = "" if cut.done else "would be "
    lines = [f"MIG {will}turned {cut.turned}"] if cut.turned else []
    lines += [f"{one} {will}destroyed" for one in cut.destroyed]
    lines += [f"{one} {will}created" for one in cut.created]
    lines += [f"in the way: {user}" for user in cut.users]
    for line in lines or ["nothing to do"]:
        click.echo(printable(line), err=err)
