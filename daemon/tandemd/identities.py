"""Who a uid is, as the user database says. It may be a directory in a network, and slow or away.

So nobody asks it on the loop's thread: whoever asks the daemon for something has its uid looked up
in a thread that may wait, and the loop finds there what was said.
"""

from __future__ import annotations

import ctypes
import grp
import pwd
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

KEPT_S = 60.0  # how long an answer counts
MOST_KEPT = 4096  # uids; those asked about longest ago are forgotten
MOST_GROUPS = 65536  # NGROUPS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user and the groups the user database gives it, looked up here and never by the client."""

    uid: int
    user: str
    groups: frozenset[str]


def identity_of(uid: int) -> Identity:
    """Look a uid up; unknown ones have no name but their number, and no groups. May take long."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Identity(uid=uid, user=str(uid), groups=frozenset())
    names = set()
    for gid in _groups(entry.pw_name, entry.pw_gid):
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return Identity(uid=uid, user=entry.pw_name, groups=frozenset(names))


def _groups(user: str, gid: int) -> Iterator[int]:
    """What os.getgrouplist returns; but that holds the GIL, and so the loop, all the while."""
    getgrouplist = ctypes.CDLL(None).getgrouplist
    most = 64
    while most <= MOST_GROUPS:
        found, count = (ctypes.c_uint32 * most)(), ctypes.c_int(most)
        if getgrouplist(user.encode(), ctypes.c_uint32(gid), found, ctypes.byref(count)) >= 0:
            yield from found[: count.value]
            return
        most *= 2


class Identities:
    """What the user database said. For any thread; `of` may block, the others never do.

    An answer counts for `KEPT_S`; of several that want the same one, one asks and the others wait.
    """

    def __init__(
        self,
        look_up: Callable[[int], Identity] = identity_of,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_s`: seconds from whenever, never less than before."""
        self._look_up = look_up
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[float, Identity]] = OrderedDict()  # with its time
        self._asking: dict[int, Future[Identity]] = {}

    def known(self, uid: int) -> Identity | None:
        """The last answer, however old; None: nobody asked, or too many others were asked about."""
        with self._lock:
            kept = self._kept.get(uid)
            if kept is None:
                return None
            self._kept.move_to_end(uid)
            return kept[1]

    def is_fresh(self, uid: int) -> bool:
        """Whether `of` would answer at once."""
        with self._lock:
            return self._fresh(uid) is not None

    def of(self, uid: int) -> Identity:
        """An answer that is not too old; asks the user database, and waits for it, if need be.

        Raises:
            OSError: it cannot be asked.
        """
        with self._lock:
            if (fresh := self._fresh(uid)) is not None:
                return fresh
            asked = self._asking.get(uid)
            if asked is None:
                mine = self._asking[uid] = Future[Identity]()
        return asked.result() if asked is not None else self._ask(uid, mine)

    def _fresh(self, uid: int) -> Identity | None:
        at_s, identity = self._kept.get(uid, (0.0, None))
        return identity if identity is not None and self._now_s() - at_s < KEPT_S else None

    def _ask(self, uid: int, answer: Future[Identity]) -> Identity:
        try:
            identity = self._look_up(uid)
        except BaseException as error:
            with self._lock:
                del self._asking[uid]
            answer.set_exception(error)
            raise
        with self._lock:
            del self._asking[uid]
            self._kept[uid] = (self._now_s(), identity)
            self._kept.move_to_end(uid)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        answer.set_result(identity)
        return identity
