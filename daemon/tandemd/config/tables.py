"""What all tables of TOML files have in common, both the daemon's and the simulator's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import AfterValidator, BaseModel, ConfigDict

from tandem.errors import UsageError


class Table(BaseModel):
    """Rejects unknown keys and values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True, slots=True)
class Form:
    """Describes for people what a text must be (`docs/config.md`); Markdown."""

    text: str


def understood_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that keeps a text but requires that `parse` accepts it."""

    def check(text: str) -> str:
        try:
            parse(text)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return text

    return AfterValidator(check)
