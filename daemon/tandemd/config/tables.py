"""What all tables of TOML files have in common, be they of the daemon or of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import AfterValidator, BaseModel, ConfigDict

from tandem.errors import UsageError


class Table(BaseModel):
    """Only what is known may be said, and only in its own type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True, slots=True)
class Form:
    """What a text has to be, for people (`docs/config.md`); Markdown."""

    text: str


def understood_by(parse: Callable[[str], object]) -> AfterValidator:
    """A text stays one, but has to be such that it can be read."""

    def check(text: str) -> str:
        try:
            parse(text)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return text

    return AfterValidator(check)
