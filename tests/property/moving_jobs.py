"""The next reports of processes whose memory moves, honest or not."""

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from tandemd.core.events import Action, CopyPool, MoveMemory, OfferFile, TakeBack
from tandemd.core.model import MemoryWait, SwapOutcome, Usage, WaitReason

MS = 1_000_000
GIB = 1 << 30

# (is busy, what one of its threads waits for)
WORK = {
    "works": (True, WaitReason.NONE),
    "steps": (True, WaitReason.NONE),
    "waits": (False, WaitReason.GATE),
    "lacks": (False, WaitReason.MEMORY),
    "rests": (False, WaitReason.NONE),
}
MEMORY = ("grows", "grows", "shrinks", "asks", "copies")
ANSWERS = ("obeys", "obeys", "obeys", "half", "fails")

CLAIMS = st.lists(
    st.tuples(
        st.integers(0, 7),  # which living process
        st.sampled_from([*WORK, *MEMORY, *ANSWERS]),
        st.sampled_from([0, 1, 1, 3, 30, 300]),  # milliseconds before it
        st.integers(1, 4),  # GiB
    ),
    min_size=4,
    max_size=16,
)


@dataclass
class Movers:
    """The living processes, and what they were told."""

    living: dict[int, Usage] = field(default_factory=dict)
    moving: set[int] = field(default_factory=set)  # processes whose memory may be moved
    moves: dict[int, MoveMemory] = field(default_factory=dict)
    asked: dict[int, OfferFile | TakeBack] = field(default_factory=dict)
    copies: list[CopyPool] = field(default_factory=list)
    tickets: int = 0

    def come(self, process: int, *, moves: bool) -> None:
        self.living[process] = Usage(process_id=process)
        if moves:
            self.moving.add(process)

    def leave(self, process: int) -> None:
        del self.living[process]
        self.moves.pop(process, None)
        self.asked.pop(process, None)
        self.copies = [copy for copy in self.copies if copy.process_id != process]

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case MoveMemory():
                    self.moves[action.process_id] = action
                case OfferFile() | TakeBack():
                    self.asked[action.process_id] = action
                case CopyPool():
                    self.copies.append(action)

    def says(self, process: int, what: str, after_ms: int, size_bytes: int) -> Usage:
        """Return the process's next report."""
        old = self.living[process]
        if what in WORK:
            said = _worked(old, what, after_ms)
        elif what in MEMORY:
            said = self._changed(old, what, size_bytes)
        else:
            said = self._answered(old, what)
        self.living[process] = said
        return said

    def _changed(self, old: Usage, what: str, size_bytes: int) -> Usage:
        match what:
            case "grows":
                movable_bytes = size_bytes if old.process_id in self.moving else 0
                return replace(
                    old,
                    device_bytes=old.device_bytes + size_bytes,
                    swappable_bytes=old.swappable_bytes + movable_bytes,
                    memory_wait=None,
                )
            case "shrinks":
                return replace(
                    old, device_bytes=0, swappable_bytes=0, swapped_bytes=0, filed_bytes=0
                )
            case "copies":
                copied_bytes = old.swap_out_bytes + size_bytes
                return replace(old, swap_out_bytes=copied_bytes, swap_out_ns=size_bytes)
            case _:
                self.tickets += 1
                wait = MemoryWait(
                    ticket=self.tickets,
                    size_bytes=size_bytes,
                    is_quota=False,
                    is_alone=True,
                    tried_round=0,
                )
                return replace(_worked(old, "rests", 0), memory_wait=wait)

    def _answered(self, old: Usage, what: str) -> Usage:
        """The process does what it was told last, or fails to."""
        outcome = SwapOutcome.FAILED if what == "fails" else SwapOutcome.REACHED
        asked = self.asked.pop(old.process_id, None)
        move = self.moves.get(old.process_id)
        if asked is not None:
            takes = isinstance(asked, OfferFile) and what != "fails"
            filed_bytes = old.swapped_bytes if takes else old.filed_bytes
            return replace(
                old, swap_done=asked.order, swap_outcome=outcome, filed_bytes=filed_bytes
            )
        if move is None:
            return old
        if what == "fails":
            return replace(old, swap_done=move.order, swap_outcome=outcome)
        away_bytes = max(0, old.swappable_bytes - move.target_bytes)
        if what == "half":
            return replace(old, swapped_bytes=(away_bytes + old.swapped_bytes) // 2)
        return replace(
            old,
            swapped_bytes=away_bytes,
            filed_bytes=min(old.filed_bytes, away_bytes),
            swap_done=move.order,
            swap_outcome=outcome,
        )


def _worked(old: Usage, what: str, after_ms: int) -> Usage:
    busy, reason = WORK[what]
    return replace(
        old,
        busy=busy,
        waiting_threads=int(reason is not WaitReason.NONE),
        wait_reason=reason,
        exclusive_ns=old.exclusive_ns + (after_ms * MS if old.busy else 0),
        steps=old.steps + (what == "steps"),
    )
