"""`tandem doctor`."""

import click

from tandem import _doctor
from tandem.cli._output import json_option, paint, print_json, printable


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check the driver, the preload library, the kernel and the daemon; say what to do.

    Exit code 1 if something fails, else 0.

    \b
    Examples:
      tandem doctor
      tandem softgpu run -- tandem doctor
      tandem doctor --json | jq '.[] | select(.level != "ok")'
    """
    findings = _doctor.examine()
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            click.echo(f"{paint(finding.level):4}  {finding.check}: {printable(finding.text)}")
            if finding.remedy:
                click.echo(f"      -> {finding.remedy}")
    ctx.exit(int(any(finding.level == _doctor.FAIL for finding in findings)))
