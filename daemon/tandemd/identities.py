"""Who a uid is, according to the user database, which may be a slow or absent network directory.

The loop's thread therefore never queries it. When somebody asks the daemon for something, a thread
that may block looks the uid up, and the loop reads the stored answer.
"""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace

KEPT_S = 60.0  # how long an answer is valid
NOBODY_KEPT_S = 5.0  # the same for "no such user", which an unreachable directory may say too
OUTLIVES_S = 3600.0  # a user stays known for so long after the last time they were found
MOST_KEPT = 4096  # uids; the least recently used are dropped
MOST_GROUPS = 65536  # NGROUPS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user and their groups, as looked up here in the user database, never as the client says."""

    uid: int
    user: str
    groups: frozenset[str]
    is_found: bool = True  # False: the user database knows no such uid, or is away


def identity_of(uid: int) -> Identity:
    """Look a uid up; an unknown one gets its number as its name and no groups. May take long."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Identity(uid=uid, user=str(uid), groups=frozenset(), is_found=False)
    names = set()
    for gid in _groups(entry.pw_name, entry.pw_gid):
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return Identity(uid=uid, user=_text(entry.pw_name), groups=frozenset(names))


def _text(name: str) -> str:
    """Replace what is not UTF-8: the surrogates that stand for it fit into no message."""
    return os.fsencode(name).decode("utf-8", "replace")


def _groups(user: str, gid: int) -> Iterator[int]:
    """Do what os.getgrouplist does, but without holding the GIL, which would stall the loop."""
    getgrouplist = ctypes.CDLL(None).getgrouplist
    most = 64
    while most <= MOST_GROUPS:
        found, count = (ctypes.c_uint32 * most)(), ctypes.c_int(most)
        if getgrouplist(os.fsencode(user), ctypes.c_uint32(gid), found, ctypes.byref(count)) >= 0:
            yield from found[: count.value]
            return
        most *= 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    identity: Identity
    said_s: float  # when the user database answered
    until_s: float  # asked again after that


class Identities:
    """Caches answers of the user database. For any thread; only `of` may block.

    An answer is valid for `KEPT_S`; if several threads want the same one, one asks and the others
    wait. A directory that is away looks as if it knew nobody. So a "no such user" is valid for
    `NOBODY_KEPT_S` only, and does not override a user who was found in the last `OUTLIVES_S`.
    """

    def __init__(
        self,
        look_up: Callable[[int], Identity] = identity_of,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_s` returns seconds of a monotonic clock."""
        self._look_up = look_up
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, _Answer] = OrderedDict()
        self._asking: dict[int, Future[Identity]] = {}

    def known(self, uid: int) -> Identity | None:
        """Return the last answer, however old; None: never asked, or evicted."""
        with self._lock:
            kept = self._kept.get(uid)
            if kept is None:
                return None
            self._kept.move_to_end(uid)
            return kept.identity

    def is_fresh(self, uid: int) -> bool:
        """Tell whether `of` would answer at once."""
        with self._lock:
            return self._fresh(uid) is not None

    def can_wait(self, uid: int) -> bool:
        """Tell whether a usable answer exists, so that a new `of` can come later."""
        with self._lock:
            kept = self._kept.get(uid)
            return self._fresh(uid) is not None or (kept is not None and self._outlives(kept))

    def of(self, uid: int) -> Identity:
        """Return a valid answer; queries the user database, and blocks, if there is none.

        Raises:
            OSError: the database cannot be queried.
        """
        with self._lock:
            if (fresh := self._fresh(uid)) is not None:
                return fresh
            asked = self._asking.get(uid)
            if asked is None:
                mine = self._asking[uid] = Future[Identity]()
        return asked.result() if asked is not None else self._ask(uid, mine)

    def _fresh(self, uid: int) -> Identity | None:
        kept = self._kept.get(uid)
        return kept.identity if kept is not None and self._now_s() < kept.until_s else None

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
            identity = self._keep(uid, identity)
        answer.set_result(identity)
        return identity

    def _keep(self, uid: int, said: Identity) -> Identity:
        """Store the answer and return the identity to use."""
        now_s = self._now_s()
        until_s = now_s + (KEPT_S if said.is_found else NOBODY_KEPT_S)
        new, old = _Answer(identity=said, said_s=now_s, until_s=until_s), self._kept.get(uid)
        if old is not None and not said.is_found and self._outlives(old):
            new = replace(old, until_s=until_s)
        self._kept[uid] = new
        self._kept.move_to_end(uid)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return new.identity

    def _outlives(self, kept: _Answer) -> bool:
        return kept.identity.is_found and self._now_s() - kept.said_s < OUTLIVES_S
