"""Which calls to show: `-e trace=...` and `-e status=...`, as in strace."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from tandem.errors import UsageError
from tandem.trace.records import Call
from tandem.trace.table import CallType, Table

Keep = Callable[[Call], bool]

_STATUSES: dict[str, Keep] = {
    "failed": lambda call: call.failed,
    "success": lambda call: call.result == 0,
    "unfinished": lambda call: call.result is None,
}


def parse_filters(expressions: Sequence[str], table: Table) -> Keep:
    """Build one predicate from all expressions; a call must satisfy each of them.

    Raises:
        UsageError: an expression is invalid, or matches no call; the text says what is possible.
    """
    parts = [_parse(text, table) for text in expressions]
    return lambda call: all(part(call) for part in parts)


def names_calls(expressions: Sequence[str]) -> bool:
    """Whether an expression selects calls by name, not only by how they ended."""
    return any(_split(text)[0] == "trace" for text in expressions)


def _split(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    # As in strace, `-e cuMemAlloc` is short for `-e trace=cuMemAlloc`.
    return (key, value) if equals else ("trace", text)


def _parse(text: str, table: Table) -> Keep:
    key, value = _split(text)
    negated = value.startswith("!")
    value = value.removeprefix("!")
    match key:
        case "trace":
            kept = _calls(value, table)
            return lambda call: (call.type.name in kept) != negated
        case "status":
            keep = _status(value)
            return lambda call: keep(call) != negated
    raise UsageError(f"-e {text!r} filters by {key!r}; known are trace=... and status=...")


def _calls(value: str, table: Table) -> frozenset[str]:
    kept: set[str] = set()
    for word in value.split(","):
        found = {call.name for call in table.calls if _names(word, call)}
        if not found:
            groups = ", ".join(sorted({call.group for call in table.calls}))
            raise UsageError(
                f"-e trace={word!r} is not an intercepted call{_hint(word, table)}; "
                f"give a name (cuMemAlloc), a pattern (cuMemcpy*) or a class: {groups}"
            )
        kept |= found
    return frozenset(kept)


def _names(word: str, call: CallType) -> bool:
    if word.removeprefix("%") == call.group:
        return True
    return bool(word) and (fnmatchcase(call.name, word) or fnmatchcase(call.base, word))


def _hint(word: str, table: Table) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, {call.base for call in table.calls}, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _status(value: str) -> Keep:
    words = value.replace("successful", "success").split(",")
    unknown = [word for word in words if word not in _STATUSES]
    if unknown:
        raise UsageError(f"-e status={unknown[0]!r} is not one of {', '.join(_STATUSES)}")
    return lambda call: any(_STATUSES[word](call) for word in words)
