"""Which memory recorded calls use, as far as it is known.

A launch uses the whole of every allocation that a word of its parameters points into, and only
reads it if the kernel's name, or its declared signature, says so. It uses nothing else if the rule
in csrc/core/dag/parameters.h says so and no earlier call is missing; otherwise there may be more.
Recordings do not contain global variables, textures and surfaces. Copies use exactly what they
name.
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
    """The allocations at the current call, while calls are processed in order."""

    def __init__(self, signatures: Mapping[str, Signature]) -> None:
        self.is_sure = True  # no call is missing, so all allocations are known
        self.importers: set[int] = set()  # processes whose memory others may map at other addresses
        self._allocations: defaultdict[int, Allocations] = defaultdict(Allocations)  # by pid
        self._kernels: dict[tuple[Function, bool], Kernel] = {}
        self._signatures = signatures

    def add(self, call: Call) -> None:
        """Register an allocation."""
        address, size = meaning.allocated_address(call), meaning.reserved_bytes(call)
        self._allocations[call.pid].add(address, size)

    def remove(self, call: Call) -> int:
        """Remove a freed allocation; return its bytes, 0 if it is not known."""
        return self._allocations[call.pid].remove(meaning.word(call, "dptr"))

    def is_device(self, call: Call, address: int) -> bool:
        """Whether the address is known to be device memory in the process of the call."""
        return self._allocations[call.pid].holding(address) is not None

    def told(self, call: Call, accesses: tuple[Access, ...]) -> tuple[Access, ...]:
        """The accesses of a copy or memset; none if others may map the memory elsewhere."""
        is_own = call.pid not in self.importers or all(
            self.is_device(call, address) for address, _, _ in accesses
        )
        return accesses if is_own else ()

    def touched(self, call: Call) -> tuple[tuple[Access, ...], int]:
        """What a launch may use, and UNRESOLVED if there may be more."""
        accesses, is_all = self._allocations[call.pid].touched_by(
            self._kernel(call), call.words[call.type.words :], is_cut=call.is_cut
        )
        # A kernel that was given no memory must work on some that the call does not show.
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
    """The accesses of a copy; none if it copies rows, arrays or several pieces."""
    size = bytes_of(call)
    target = _first_word(call, "dstDevice", "dstHost", "dst")
    source = _first_word(call, "srcDevice", "srcHost", "src")
    return ((source, size, True), (target, size, False)) if size and target and source else ()


def written(call: Call) -> tuple[Access, ...]:
    """The access of a memset; none for rows with a pitch, since the gaps between them stay."""
    size, address = meaning.set_bytes(call), meaning.word(call, "dstDevice")
    is_one_piece = meaning.word(call, "Height") <= 1
    return ((address, size, False),) if size and is_one_piece else ()


def _first_word(call: Call, *names: str) -> int:
    return next((found for name in names if (found := meaning.word(call, name))), 0)
