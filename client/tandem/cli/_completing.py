"""Shell completion of names that only the daemon knows; none if it does not answer at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from tandem.errors import TandemError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tandem._client import Client
    from tandem._results import Job

_PATIENCE_S = 1.0  # short: a person has pressed a key and waits
_Words = Iterable[tuple[str, str]]  # each word with a remark, which zsh and fish show


def _offering(
    words: Callable[[Client], _Words],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Make the callback with which click completes a partly typed word."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from tandem.cli._output import open_client

        said = ctx.params.get(param.name or "") or ()
        try:
            with open_client() as client:
                found = dict(words(client))
        except TandemError:
            return []
        return [
            CompletionItem(word, help=remark)
            for word, remark in found.items()
            if word.startswith(incomplete) and word not in said and _is_a_word(word)
        ]

    return complete


def _is_a_word(text: str) -> bool:
    """Tell whether a shell and the command take this text, chosen by anybody, as one plain word."""
    return text[:1] not in ("", "-") and all(c.isalnum() or c in "-_.:/@+" for c in text)


def _of_jobs(client: Client) -> Iterator[tuple[str, str]]:
    for job in client.jobs(deadline_s=_PATIENCE_S):
        yield job.display_name, _remark(job)
        yield job.name, _remark(job)


def _remark(job: Job) -> str:
    return f"{job.priority}, {job.state}"


def _of_groups(client: Client) -> Iterator[tuple[str, str]]:
    for job in client.jobs(deadline_s=_PATIENCE_S):
        yield job.group, "group"


def _of_gpus(client: Client) -> Iterator[tuple[str, str]]:
    for gpu in client.gpus(deadline_s=_PATIENCE_S):
        yield gpu.name, gpu.product_name


def _of_policies(client: Client) -> Iterator[tuple[str, str]]:
    return ((name, "policy") for name in client.policy(deadline_s=_PATIENCE_S).available)


jobs, groups = _offering(_of_jobs), _offering(_of_groups)
gpus, policies = _offering(_of_gpus), _offering(_of_policies)
