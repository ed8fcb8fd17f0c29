"""Which memory recorded calls use, as far as it is known.

A launch uses every allocation that a word of its parameters points into, whole, and only reads it
where the kernel's name, or what is declared of it, says so. Those are all if the rule in
csrc/core/dag/parameters.h says it and no call is missing before; else there may be more. Global
variables, textures and surfaces are in no recording. Copies use just what they name.
"""

from collections import defaultdict
from collections.abc import Mapping

from tandem._native import Allocations, Kernel, Signature
from tandem.dag.model import UNRESOLVED, Access
from tandem.errors import UsageError
from tandem.trace import meaning
from tandem.trace.lines import bytes_of
from tandem.trace.records import Call, Function

_UNNAMED = Kernel("", ())


class Memory:
    """What is allocated while calls go by."""

    def __init__(self, signatures: Mapping[str, Signature]) -> None:
        self.is_sure = True  # no call is missing, so what is allocated is known
        self.importers: set[int] = (
            set()
        )  # processes with memory that others may know by other addresses
        self._allocations: defaultdict[int, Allocations] = defaultdict(Allocations)  # by pid
        self._kernels: dict[tuple[Function, bool], Kernel] = {}
        self._signatures = signatures

    def add(self, call: Call) -> None:
        """An allocation."""
        address, size = meaning.allocated_address(call), meaning.reserved_bytes(call)
        self._allocations[call.pid].add(address, size)

    def remove(self, call: Call) -> int:
        """A free: how many bytes, 0 if it is not known."""
        return self._allocations[call.pid].remove(meaning.word(call, "dptr"))

    def is_device(self, call: Call, address: int) -> bool:
        """Whether the address is known to be of the device, in the process of the call."""
        return self._allocations[call.pid].holding(address) is not None

    def told(self, call: Call, accesses: tuple[Access, ...]) -> tuple[Access, ...]:
        """What a copy or memset names; nothing where it may have other addresses elsewhere."""
        is_own = call.pid not in self.importers or all(
            self.is_device(call, address) for address, _, _ in accesses
        )
        return accesses if is_own else ()

    def touched(self, call: Call) -> tuple[tuple[Access, ...], int]:
        """What a launch may use, and the flag of what else is not known."""
        accesses, is_all = self._allocations[call.pid].touched_by(
            self._kernel(call), call.words[call.type.words :], is_cut=call.is_cut
        )
        # A kernel that was given no memory at all does its work somewhere unseen.
        is_all = is_all and bool(accesses) and self.is_sure
        return accesses, 0 if is_all else UNRESOLVED

    def _kernel(self, call: Call) -> Kernel:
        function = call.function
        if function is None:
            return _UNNAMED
        known = self._kernels.get((function, call.is_cut))
        if known is None:
            declared = self._declared(function, is_cut=call.is_cut)
            known = Kernel(function.name, function.parameters, declared=declared)
            self._kernels[function, call.is_cut] = known
        return known

    def _declared(self, function: Function, *, is_cut: bool) -> Signature | None:
        found = self._signatures.get(function.name)
        if found and not is_cut:
            try:
                found.check(function.name, function.parameters)
            except ValueError as exc:
                raise UsageError(f"{exc}; correct its signature") from exc
        return found


def copied(call: Call) -> tuple[Access, ...]:
    """Of one piece to another; nothing where rows, arrays or several pieces are copied."""
    size = bytes_of(call)
    target = _first_word(call, "dstDevice", "dstHost", "dst")
    source = _first_word(call, "srcDevice", "srcHost", "src")
    return ((source, size, True), (target, size, False)) if size and target and source else ()


def written(call: Call) -> tuple[Access, ...]:
    """By a memset; nothing where rows have a pitch, for what is between them stays as it is."""
    size, address = meaning.set_bytes(call), meaning.word(call, "dstDevice")
    is_one_piece = meaning.word(call, "Height") <= 1
    return ((address, size, False),) if size and is_one_piece else ()


def _first_word(call: Call, *names: str) -> int:
    return next((found for name in names if (found := meaning.word(call, name))), 0)
