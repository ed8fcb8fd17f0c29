"""How long recorded launches take on the GPU; if not measured, the mean for the kernel name."""

from collections.abc import Sequence

from tandem.dag.model import ESTIMATED
from tandem.trace import meaning
from tandem.trace.records import Call


class Times:
    """The mean duration of each kernel that was timed at least once."""

    def __init__(self, calls: Sequence[Call]) -> None:
        times: dict[str, list[int]] = {}
        for call in calls:
            if call.device_ns is not None and meaning.kind_of(call) in ("launch", "graph"):
                times.setdefault(kernel_name(call), []).append(call.device_ns)
        self._means = {name: sum(found) // len(found) for name, found in times.items()}

    def of(self, call: Call, name: str) -> tuple[int, int]:
        """The duration of a launch in ns, and ESTIMATED if it is a mean; 0 if unknown."""
        if call.device_ns is not None:
            return call.device_ns, 0
        mean = self._means.get(name, 0)
        return mean, ESTIMATED if mean else 0


def kernel_name(call: Call) -> str:
    """The display name of a launch."""
    if call.type.base == "cuGraphLaunch":
        return f"graph {meaning.word(call, 'hGraph'):#x}"
    return (call.function.name if call.function else "") or "unnamed kernel"
