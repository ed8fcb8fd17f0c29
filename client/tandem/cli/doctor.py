"""`tandem doctor`."""

from typing import TYPE_CHECKING

import click

from tandem import _doctor
from tandem._text import printable
from tandem.cli._output import json_option, paint, print_json, print_table
from tandem.cli._progress import progress

if TYPE_CHECKING:
    from tandem._coverage import Coverage, HeaderCoverage


@click.command()
@click.option(
    "--coverage",
    "of_calls",
    is_flag=True,
    help="Show instead which driver functions the preload library sees, per version of cuda.h.",
)
@json_option
@click.pass_context
def doctor(ctx: click.Context, of_calls: bool, as_json: bool) -> None:
    """Check the driver, the preload library, the kernel and the daemon, and suggest fixes.

    If MPS runs, two processes test for a few seconds whether sets of SMs (mode mps+green) work,
    unless a daemon knows already.

    Exit code 1 if a check fails, else 0. With --coverage, 1 if a function is unclassified, or is
    unhandled although it computes, moves bytes or allocates memory.

    \b
    Examples:
      tandem doctor
      tandem doctor --coverage
      tandem softgpu run -- tandem doctor
      tandem doctor --json | jq '.[] | select(.level != "ok")'
      tandem doctor --coverage --json | jq '.headers[].unhandled'
    """
    if of_calls:
        ctx.exit(_show_coverage(as_json=as_json))
    with progress(is_long=True) as shown:
        findings = _doctor.examine(shown.now)
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            click.echo(f"{paint(finding.level):4}  {finding.check}: {printable(finding.text)}")
            if finding.remedy:
                click.echo(f"      -> {finding.remedy}")
    ctx.exit(int(any(finding.level == _doctor.FAIL for finding in findings)))


def _show_coverage(*, as_json: bool) -> int:
    from tandem._coverage import coverage

    covered = coverage()
    if as_json:
        print_json(covered)
    else:
        _print_coverage(covered)
    return int(not covered.is_complete)


def _print_coverage(covered: "Coverage") -> None:
    versions = list(covered.headers)
    groups = {group: None for header in covered.headers.values() for group in header.classes}
    rows = [[group, *(_count(covered.headers[v], group) for v in versions)] for group in groups]
    rows.append(["all", *(_count(covered.headers[v], *groups) for v in versions)])
    print_table(["class", *versions], rows, right=versions)
    click.echo(
        f"handled/declared functions; the library was built with cuda.h {covered.built_with}"
    )
    _print_names("unclassified", {v: h.unclassified for v, h in covered.headers.items()})
    _print_names("unhandled", {v: h.unhandled for v, h in covered.headers.items()})
    _print_names("newer than the build", {v: h.not_built for v, h in covered.headers.items()})
    if covered.is_complete:
        click.echo("unclassified: none; unhandled: none")


def _count(header: "HeaderCoverage", *groups: str) -> str:
    counts = [header.classes[group] for group in groups if group in header.classes]
    return f"{sum(c.handled for c in counts)}/{sum(c.functions for c in counts)}"


def _print_names(title: str, names_by_version: dict[str, tuple[str, ...]]) -> None:
    """Print each name once, under the first version that has it."""
    known: set[str] = set()
    for version, names in names_by_version.items():
        if new := [name for name in names if name not in known]:
            click.echo(f"{title}, since {version}: {', '.join(new)}")
        known.update(names)
