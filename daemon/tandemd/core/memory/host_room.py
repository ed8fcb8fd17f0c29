"""Who gets room in host memory: it is promised before anything of a process moves.

A process is given room for what is to move out, and keeps it for the next time. It gives back what
it has no use for (`Home.spare_pool`) when others lack room, and after a while in any case, because
nobody else on the machine can use that memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tandemd.core.events import TakeBack
from tandemd.core.memory.homes import MIB, UNIT, Home, HomeAction, make_room, memory_left_bytes
from tandemd.core.memory.swap_places import Place, shared_out
from tandemd.core.model import GroupKey, Options

# Each order brings a pool of its own, and each pool may get a file: better few and large ones.
STEP = 256 * MIB
PLENTY = 16  # a pool is rounded up within 1/16 of what is left
SPARE_NS = 60_000_000_000  # a spare pool that nobody lacks stays this long: it may be needed again


def is_worth_it(places: list[Place], least: int, kept_bytes: int) -> bool:
    """Tell whether the next step out is large enough, where files make room step by step."""
    resident_bytes = sum(place.resident_bytes for place in places)
    return resident_bytes - least >= min(STEP, resident_bytes - kept_bytes)


class HostRoom:
    """Who lacks host memory. Pure; belongs to `Residency`."""

    def __init__(self, places: dict[int, Place]) -> None:
        """`places`: all processes, by id; never changed here."""
        self._places = places
        self._lacking: dict[int, int] = {}  # would go now: process -> how much of it should stay
        self._in_the_way: dict[int, int] = {}  # somebody waits for them; as of a review
        self.look_at_ns: int | None = None  # when there is more to do, even without news

    @property
    def _homes(self) -> list[Home]:
        return [place.home for place in self._places.values()]

    def left_bytes(self, options: Options) -> int:
        """Return how much can be given at once."""
        return memory_left_bytes(self._homes, options)

    def figures(self, options: Options, now_ns: int) -> tuple[int, ...]:
        """Return all figures by which a process on one island affects decisions on others."""
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
        """Return, for each group, what the host can give: at once, or when others have made room.

        Others make room by going to files or by giving memory back.
        """
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
        """Return what a process is given to move out this far; None: not enough is left."""
        wanted_bytes = place.home.lacks_bytes(target_bytes)
        left_bytes = self.left_bytes(options)
        if wanted_bytes > left_bytes:
            return None
        if place.process.process_id not in self._lacking:
            place.told_bytes = 0
        if wanted_bytes == 0:
            return 0
        # Others may need what is left, so the pool is rounded up only where plenty is left.
        plenty_bytes = min(-(-wanted_bytes // STEP) * STEP, place.home.lacks_bytes(0))
        return max(wanted_bytes, min(plenty_bytes, left_bytes // PLENTY // UNIT * UNIT))

    # Who lacks room

    def forget(self, process_id: int) -> None:
        """Drop a process that is gone."""
        self._in_the_way.pop(process_id, None)
        self._lacking.pop(process_id, None)

    def begin_review(self, groups: Mapping[GroupKey, list[Place]]) -> None:
        """Reset these groups: as far as is known, they are in nobody's way."""
        _drop(self._in_the_way, groups)

    def begin(self, groups: Mapping[GroupKey, list[Place]]) -> None:
        """Forget what these groups lack; what was noted as in the way stays so."""
        _drop(self._lacking, groups)

    def is_in_the_way(self, places: list[Place], target_bytes: int) -> None:
        """Note that somebody waits until at most `target_bytes` of a group are on the GPU."""
        for place, part_bytes in shared_out(places, target_bytes):
            self._in_the_way[place.process.process_id] = part_bytes

    def lacks(self, places: list[Place], target_bytes: int) -> None:
        """Note that only `target_bytes` of a group would stay if the host had room for the rest."""
        for place, part_bytes in shared_out(places, target_bytes):
            self._lacking[place.process.process_id] = part_bytes

    def wants_files(self, options: Options) -> bool:
        """Tell whether something should go to files so that others' memory can take its place."""
        return bool(self._lacking) and options.file_limit_bytes > 0

    # What is done about it

    def make(
        self, coldest: list[Place], idle: list[Place], options: Options, now_ns: int
    ) -> Iterator[HomeAction]:
        """Make room for those who lack it.

        `coldest`: those whose memory rests on the host, the one needed last first. `idle`: those
        whose memory will not leave the GPU as things stand.
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
        """Ask for spare pools back, one per process: while it answers it gets no other order."""
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
        """Return how much of what is lacked is neither left nor about to be freed."""
        leaving = sum(home.leaving_bytes(now_ns) for home in self._homes)
        wanted = self._wanted_bytes(self._in_the_way | self._lacking)
        return wanted - self.left_bytes(options) - leaving

    def _wanted_bytes(self, wished: dict[int, int]) -> int:
        """Return what the host must give so that at most this much of each stays on the GPU."""
        places = self._places
        return sum(places[i].home.lacks_bytes(part) for i, part in wished.items() if i in places)

    def _tell(self, options: Options, now_ns: int) -> None:
        """Tell the stories of jobs that lack room, unless room is being made."""
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
            # Memory that grows bit by bit is not reported bit by bit.
            if place is None or not more_bytes or 2 * more_bytes < 3 * place.told_bytes:
                continue
            place.told_bytes = more_bytes
            place.tell_it_stays(
                now_ns,
                f"it needs {more_bytes // MIB} MiB of the host, and {left_bytes // MIB} MiB are "
                f"left of the {options.host_limit_bytes // MIB} MiB that host_limit allows{files}",
            )

    def _look_at(self, at_ns: int) -> None:
        self.look_at_ns = at_ns if self.look_at_ns is None else min(self.look_at_ns, at_ns)


def _drop(kept: dict[int, int], groups: Mapping[GroupKey, list[Place]]) -> None:
    for places in groups.values():
        for place in places:
            kept.pop(place.process.process_id, None)
