"""`[watchdog]` and a table for each of its rules, made from the rules' own thresholds.

A threshold in nanoseconds becomes a key in seconds; all others keep their names. The unit at the
end of a name also sets its range: ratios are 0..1, everything else is more than 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field as RuleField
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from tandemd.core.watchdog.rule import RULES, Rule
from tandemd.core.watchdog.watchdog import Watch

MAX_LOOKS = 600  # looks kept of each job
RULE_PAGE = "[What it finds](operations.md#what-the-watchdog-finds)"
ENABLED = "whether this rule watches jobs"
# The meaning of each threshold, for people; a key of a rule without an entry here is an error at
# startup.
WORDS = {
    "stall": {
        "floor_s": "the job has made no progress for at least this long",
        "iterations_count": "and for as long as this many of its usual iterations take",
        "held_slack_s": "or it is held, or waits at its open gate, for this much longer than "
        "`scheduler.max_hold_s`",
    },
    "starvation": {
        "span_s": "how far back the rule looks",
        "got_ratio": "it gets less than this fraction of what the policy promises",
        "waiting_ratio": "and waits at gate, window or presence for at least this fraction of the "
        "time",
    },
    "leak": {"growth_bytes": "its memory at the ends of iterations has grown by this much"},
    "launch-bound": {
        "span_s": "how far back the rule looks",
        "filled_ratio": "its kernels fill less than this fraction of the time in which the GPU "
        "has work of the job",
        "occupied_ratio": "the GPU has work of this job alone for at least this fraction of the "
        "time",
        "kernel_s": "and its kernels are shorter than this, on average",
    },
    "thrash": {
        "span_s": "how far back the rule looks",
        "turns_per_s": "it gets this many turns, shorter than its iterations,",
        "lost_ratio": "and this fraction of the time goes to no job",
        "allocations_count": "or it allocates device memory this many times per iteration",
        "allocations_per_s": "and this many times per second",
    },
}


class RuleTable(BaseModel):
    """`[watchdog.<rule>]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    enabled: bool = Field(default=True, description=ENABLED)


class WatchdogBase(BaseModel):
    """The settings that belong to no single rule."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    enabled: bool = Field(default=True, description="whether jobs are watched at all")
    period_ms: float = Field(
        default=1000, ge=1, le=60_000, description="time between two checks of all jobs"
    )

    def watch(self) -> Watch:
        """Return the settings for the core."""
        rules = {
            name: _rule(rule, table)
            for name, rule in RULES.items()
            if (table := getattr(self, _attribute(name))).enabled and self.enabled
        }
        return Watch(period_ns=int(self.period_ms * 1e6), rules=rules)

    @model_validator(mode="after")
    def _keeps_few_looks(self) -> Self:
        for name, rule in self.watch().rules.items():
            looks = rule.span_ns / (self.period_ms * 1e6)
            if looks > MAX_LOOKS:
                raise ValueError(
                    f"{name}.span_s is {looks:.0f} times period_ms; "
                    f"at most {MAX_LOOKS} times are kept"
                )
        return self


def keys_of(rule: type[Rule]) -> Iterator[tuple[str, RuleField[Any]]]:
    """Yield the keys of a rule's table besides `enabled`, and the thresholds that they set."""
    for field in fields(rule):  # type: ignore[arg-type] # each is a dataclass; a Protocol is not
        yield field.name.removesuffix("_ns") + "_s" * field.name.endswith("_ns"), field


def _rule(rule: type[Rule], table: RuleTable) -> Rule:
    values = {}
    for key, field in keys_of(rule):
        value = getattr(table, key)
        values[field.name] = int(value * 1e9) if field.name.endswith("_ns") else value
    return rule(**values)


def _table_of(name: str, rule: type[Rule]) -> Any:  # noqa: ANN401 - a model is a value to mypy
    definitions: dict[str, Any] = {}
    for key, field in keys_of(rule):
        in_ns, whole = field.name.endswith("_ns"), field.name.endswith("_bytes")
        default: Any = field.default
        bounds: dict[str, Any] = {"le": 1} if key.endswith("_ratio") else {}
        definitions[key] = (
            int if whole else float,
            Field(
                default=default / 1e9 if in_ns else default,
                gt=0,
                description=WORDS[name][key],
                **bounds,
            ),
        )
    doc = f"`[watchdog.{name}]`: {RULE_PAGE}."
    return create_model(f"{name} table", __base__=RuleTable, __doc__=doc, **definitions)


def _attribute(name: str) -> str:
    return name.replace("-", "_")


def _tables() -> dict[str, Any]:
    tables = {name: _table_of(name, rule) for name, rule in RULES.items()}
    return {
        _attribute(name): (table, Field(default=table(), alias=name))
        for name, table in tables.items()
    }


if TYPE_CHECKING:
    WatchdogTable = WatchdogBase
else:
    WatchdogTable = create_model(
        "WatchdogTable", __base__=WatchdogBase, __doc__="`[watchdog]`.", **_tables()
    )
