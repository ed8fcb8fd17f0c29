"""`tandem policy`."""

import click

from tandem._results import Policy
from tandem.cli import _completing
from tandem.cli._group import Group
from tandem.cli._output import json_option, open_client, print_json


@click.group(cls=Group)
def policy() -> None:
    """Show or change the policy, which decides which job computes when.

    \b
    Examples:
      tandem policy get
      tandem policy set fair
    """


@policy.command("get")
@json_option
def get_(*, as_json: bool) -> None:
    """Show the policy in force, and which others there are.

    docs/operations.md, "What the policies do", describes each of them.

    \b
    Examples:
      tandem policy get
      tandem policy get --json | jq -r .name
    """
    with open_client() as client:
        _show(client.policy(), as_json=as_json)


@policy.command("set")
@click.argument("name", shell_complete=_completing.policies)
@json_option
def set_(*, name: str, as_json: bool) -> None:
    """Switch to another policy; for admins.

    It takes effect at once, for all jobs, until the daemon reads its configuration again, which it
    does when it is started or reloaded. For a permanent change, set scheduler.policy there.

    \b
    Examples:
      tandem policy set fair
    """
    with open_client() as client:
        _show(client.set_policy(name), as_json=as_json)
    if not as_json:
        click.echo("until the daemon is reloaded or restarted; then scheduler.policy applies")


def _show(found: Policy, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    click.echo(f"{found.name}: {found.description}")
    click.echo(f"others: {', '.join(name for name in found.available if name != found.name)}")
