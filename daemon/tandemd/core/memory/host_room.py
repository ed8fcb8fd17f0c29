"""What the host has room for, and who gets it: it is promised before anything of a process moves.

A process is given room for what is to go, and keeps it for the next time. It gives back what it
has no use for (`Home.spare_pool`) when others lack room, and after a while in any case: what it
has is memory of the machine that nobody else can use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tandemd.core.events import TakeBack
from tandemd.core.memory.homes import MIB, UNIT, Home, HomeAction, make_room, memory_left_bytes
from tandemd.core.memory.swap_places import Place, shared_out
from tandemd.core.model import GroupKey, Options

# Each order brings a pool of its own, and each pool may get a file: rather few and large ones.
STEP = 256 * MIB
PLENTY = 16  # what is left is so many times what nobody asked for yet
SPARE_NS = 60_000_000_000  # what nobody lacks stays with a process that may need it again so soon


def is_worth_it(places: list[Place], least: int, kept_bytes: int) -> bool:
    """Where files make room bit by bit: whether the next bit is large enough for one."""
    resident_bytes = sum(place.resident_bytes for place in places)
    return resident_bytes - least >= min(STEP, resident_bytes - kept_bytes)


class HostRoom:
    """Who lacks room of the host. Pure; belongs to the residency of memory."""

    def __init__(self, places: dict[int, Place]) -> None:
        """`places` is who there is, by process; never changed here."""
        self._places = places
        self._lacking: dict[int, int] = {}  # would go now: process -> how much of it should stay
        self._in_the_way: dict[int, int] = {}  # somebody waits for them; of a review
        self.look_at_ns: int | None = None  # when something else can be done, though nothing is new

    @property
    def _homes(self) -> list[Home]:
        return [place.home for place in self._places.values()]

    def left_bytes(self, options: Options) -> int:
        """To be given at once."""
        return memory_left_bytes(self._homes, options)

    def figures(self, options: Options, now_ns: int) -> tuple[int, ...]:
        """All that anybody's memory is decided by who is not of the same island."""
        left_bytes = options.host_limit_bytes
        leaving_bytes = in_files = rests = 0
        for place in self._places.values():
            home = place.home
            if home.pools:
                memory_bytes, leaves = home.memory_bytes, home.leaving_bytes(now_ns)
                left_bytes -= memory_bytes
                leaving_bytes += leaves
                in_files += home.file_bytes
                rests += memory_bytes - leaves if place.rests_on_host else 0
        return left_bytes, leaving_bytes, in_files, rests

    def to_come_bytes(
        self, groups: Mapping[GroupKey, list[Place]], options: Options, now_ns: int
    ) -> dict[GroupKey, int]:
        """For each group: to be given at once, or when others have made room, by files or back."""
        left_bytes = self.left_bytes(options)
        left_bytes += sum(home.leaving_bytes(now_ns) for home in self._homes)
        in_files = sum(home.file_bytes for home in self._homes)
        files_left = max(0, options.file_limit_bytes - in_files)
        if not files_left:
            return dict.fromkeys(groups, left_bytes)
        rests = {
            process_id: place.home.memory_bytes - place.home.leaving_bytes(now_ns)
            for process_id, place in self._places.items()
            if place.rests_on_host
        }
        total = sum(rests.values())
        found = {}
        for key, places in groups.items():
            own = sum(rests.get(place.process.process_id, 0) for place in places)
            found[key] = left_bytes + min(total - own, files_left)
        return found

    def promise(self, place: Place, target_bytes: int, options: Options) -> int | None:
        """What a process is given to go so far; None: there is not enough of it any more."""
        wanted_bytes = place.home.lacks_bytes(target_bytes)
        left_bytes = self.left_bytes(options)
        if wanted_bytes > left_bytes:
            return None
        if place.process.process_id not in self._lacking:
            place.told_bytes = 0
        if wanted_bytes == 0:
            return 0
        # Others may need what is left: a large pool is only made of what is plenty.
        plenty_bytes = min(-(-wanted_bytes // STEP) * STEP, place.home.lacks_bytes(0))
        return max(wanted_bytes, min(plenty_bytes, left_bytes // PLENTY // UNIT * UNIT))

    # Who lacks room

    def forget(self, process_id: int) -> None:
        """It is gone."""
        self._in_the_way.pop(process_id, None)
        self._lacking.pop(process_id, None)

    def begin_review(self, groups: Mapping[GroupKey, list[Place]]) -> None:
        """Nobody of these is in the way of anybody, as far as is known."""
        _drop(self._in_the_way, groups)

    def begin(self, groups: Mapping[GroupKey, list[Place]]) -> None:
        """Nobody of these lacks anything, as far as is known, but those who are in the way."""
        _drop(self._lacking, groups)

    def is_in_the_way(self, places: list[Place], target_bytes: int) -> None:
        """Somebody waits until no more than that of a group is on the GPU."""
        for place, part_bytes in shared_out(places, target_bytes):
            self._in_the_way[place.process.process_id] = part_bytes

    def lacks(self, places: list[Place], target_bytes: int) -> None:
        """No more than that of a group would stay on the GPU if there were room for the rest."""
        for place, part_bytes in shared_out(places, target_bytes):
            self._lacking[place.process.process_id] = part_bytes

    def wants_files(self, options: Options) -> bool:
        """Something should go to files, for others' memory to come in its place."""
        return bool(self._lacking) and options.file_limit_bytes > 0

    # What is done about it

    def make(
        self, coldest: list[Place], idle: list[Place], options: Options, now_ns: int
    ) -> Iterator[HomeAction]:
        """Have room made for who lacks it.

        `coldest`: those whose memory rests on the host and is needed last, first. `idle`: those
        whose memory is not going to leave the GPU, as things are.
        """
        self.look_at_ns = None
        yield from self._take_back(idle, options, now_ns)
        if self.wants_files(options):
            wanted_bytes = self._wanted_bytes(self._lacking)
            resting = [place.home for place in coldest]
            yield from make_room(self._homes, resting, wanted_bytes, options, now_ns)
        for home in self._homes:
            if home.look_again_ns > now_ns:
                self._look_at(home.look_again_ns)
        self._tell(options, now_ns)

    def _take_back(self, idle: list[Place], options: Options, now_ns: int) -> Iterator[TakeBack]:
        """One pool of a process at a time: while it answers it gets no other order."""
        resting = {place.process.process_id for place in idle}
        missing_bytes = self._missing_bytes(options, now_ns)
        for process_id, place in self._places.items():
            home = place.home
            if home.underway is not None:
                continue
            pool = None
            if place.is_whole and place.process.gives_back:
                pool = home.spare_pool(is_idle=process_id in resting)
            if pool is None:
                home.spare_since_ns = None
                continue
            if home.spare_since_ns is None:
                home.spare_since_ns = now_ns
            due_ns = home.spare_since_ns + (0 if missing_bytes > 0 else SPARE_NS)
            due_ns = max(due_ns, home.let_alone_until_ns)
            if now_ns < due_ns:
                self._look_at(due_ns)
                continue
            missing_bytes -= pool.size_bytes
            place.order += 1
            yield home.ask_back(pool, order=place.order, now_ns=now_ns)

    def _missing_bytes(self, options: Options, now_ns: int) -> int:
        """Of what is lacked, what is neither left nor on its way."""
        leaving = sum(home.leaving_bytes(now_ns) for home in self._homes)
        wanted = self._wanted_bytes(self._in_the_way | self._lacking)
        return wanted - self.left_bytes(options) - leaving

    def _wanted_bytes(self, wished: dict[int, int]) -> int:
        """What the host has to give for no more than that of each process to be on the GPU."""
        places = self._places
        return sum(places[i].home.lacks_bytes(part) for i, part in wished.items() if i in places)

    def _tell(self, options: Options, now_ns: int) -> None:
        """Say so in the stories, unless room is being made."""
        short = self._in_the_way | self._lacking
        if not short or any(home.leaving_bytes(now_ns) for home in self._homes):
            return
        left_bytes = self.left_bytes(options)
        files = ""
        if options.file_limit_bytes:
            in_files = sum(home.file_bytes for home in self._homes)
            files = f", and {(options.file_limit_bytes - in_files) // MIB} MiB of what "
            files += f"swap_dir_limit allows in files, {options.file_limit_bytes // MIB} MiB"
        for process_id, part_bytes in short.items():
            place = self._places.get(process_id)
            more_bytes = place.home.lacks_bytes(part_bytes) if place is not None else 0
            # Memory that grows bit by bit is not told of bit by bit.
            if place is None or not more_bytes or 2 * more_bytes < 3 * place.told_bytes:
                continue
            place.told_bytes = more_bytes
            place.tell_it_stays(
                now_ns,
                f"{more_bytes // MIB} MiB of the host are needed for "
                f"it, and {left_bytes // MIB} MiB are left of the "
                f"{options.host_limit_bytes // MIB} MiB that host_limit allows{files}",
            )

    def _look_at(self, at_ns: int) -> None:
        self.look_at_ns = at_ns if self.look_at_ns is None else min(self.look_at_ns, at_ns)


def _drop(kept: dict[int, int], groups: Mapping[GroupKey, list[Place]]) -> None:
    for places in groups.values():
        for place in places:
            kept.pop(place.process.process_id, None)
