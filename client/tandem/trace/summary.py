"""The table of `-c`: how often each call was made and how long it took."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tandem.trace.lines import duration_text
from tandem.trace.records import Call

_HEADER = ("share", "total", "mean", "max", "calls", "errors", "call")


@dataclass(slots=True)
class Row:
    """The figures of one call; times in ns."""

    name: str
    calls: int = 0
    returned: int = 0  # of these; the others never did, so nobody knows how long they took
    errors: int = 0
    total_ns: int = 0
    max_ns: int = 0

    @property
    def mean_ns(self) -> int:
        """Mean time over the calls that returned; 0 if none did."""
        return self.total_ns // self.returned if self.returned else 0


@dataclass(slots=True)
class Summary:
    """Accumulates calls as they arrive."""

    rows: dict[str, Row] = field(default_factory=dict)

    def add(self, call: Call) -> None:
        """Add one call."""
        row = self.rows.setdefault(call.type.name, Row(call.type.name))
        row.calls += 1
        row.returned += call.duration_ns is not None
        row.errors += call.failed and not call.is_lookup  # a missing function is no error
        row.total_ns += call.duration_ns or 0
        row.max_ns = max(row.max_ns, call.duration_ns or 0)

    def sorted(self) -> list[Row]:
        """The rows, longest total time first."""
        return sorted(self.rows.values(), key=lambda row: (-row.total_ns, -row.calls, row.name))

    def lines(self) -> list[str]:
        """The table as text lines."""
        rows = self.sorted()
        total_ns = sum(row.total_ns for row in rows)
        body = [_cells(row, total_ns) for row in rows]
        end = Row(
            "total",
            calls=sum(row.calls for row in rows),
            returned=sum(row.returned for row in rows),
            errors=sum(row.errors for row in rows),
            total_ns=total_ns,
            max_ns=max((row.max_ns for row in rows), default=0),
        )
        return _aligned([_HEADER, *body, _cells(end, total_ns)])

    def as_dicts(self) -> list[dict[str, object]]:
        """The rows as dicts with stable keys."""
        return [
            {
                "call": row.name,
                "calls": row.calls,
                "returned": row.returned,
                "errors": row.errors,
                "total_ns": row.total_ns,
                "mean_ns": row.mean_ns,
                "max_ns": row.max_ns,
            }
            for row in self.sorted()
        ]


def summarise(calls: Iterable[Call]) -> Summary:
    """Summarise all `calls`."""
    summary = Summary()
    for call in calls:
        summary.add(call)
    return summary


def _cells(row: Row, total_ns: int) -> tuple[str, ...]:
    share = 100 * row.total_ns / total_ns if total_ns else 0.0
    times = (row.total_ns, row.mean_ns, row.max_ns)
    return (
        f"{share:.1f}%",
        *map(duration_text, times),
        str(row.calls),
        str(row.errors or ""),
        row.name,
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER) - 1)]
    return [
        "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
