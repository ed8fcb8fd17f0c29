"""Who a uid is, as the user database says. It may be a directory in a network, and slow or away.

So nobody asks it on the loop's thread: whoever asks the daemon for something has its uid looked up
in a thread that may wait, and the loop finds there what was said.
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

KEPT_S = 60.0  # how long an answer counts
NOBODY_KEPT_S = 5.0  # how long one counts that there is no such user: the directory may be away
OUTLIVES_S = 3600.0  # how long somebody who was found is gone by when that is said afterwards
MOST_KEPT = 4096  # uids; those asked about longest ago are forgotten
MOST_GROUPS = 65536  # NGROUPS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user and the groups the user database gives it, looked up here and never by the client."""

    uid: int
    user: str
    groups: frozenset[str]
    is_found: bool = True  # False: the user database knows nobody of that uid, or is away


def identity_of(uid: int) -> Identity:
    """Look a uid up; unknown ones have no name but their number, and no groups. May take long."""
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
    """The same where it is UTF-8; else it holds surrogates, which no message can."""
    return os.fsencode(name).decode("utf-8", "replace")


def _groups(user: str, gid: int) -> Iterator[int]:
    """What os.getgrouplist returns; but that holds the GIL, and so the loop, all the while."""
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
    said_s: float  # when the user database did
    until_s: float  # asked again after that


class Identities:
    """What the user database said. For any thread; `of` may block, the others never do.

    An answer counts for `KEPT_S`; of several that want the same one, one asks and the others wait.
    A directory that is away looks as if it knew nobody. So that counts for `NOBODY_KEPT_S` only,
    and not against somebody who was found in the last `OUTLIVES_S`.
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
        self._kept: OrderedDict[int, _Answer] = OrderedDict()
        self._asking: dict[int, Future[Identity]] = {}

    def known(self, uid: int) -> Identity | None:
        """The last answer, however old; None: nobody asked, or too many others were asked about."""
        with self._lock:
            kept = self._kept.get(uid)
            if kept is None:
                return None
            self._kept.move_to_end(uid)
            return kept.identity

    def is_fresh(self, uid: int) -> bool:
        """Whether `of` would answer at once."""
        with self._lock:
            return self._fresh(uid) is not None

    def can_wait(self, uid: int) -> bool:
        """Whether there is something to go by until it is asked again: `of` may well be later."""
        with self._lock:
            kept = self._kept.get(uid)
            return self._fresh(uid) is not None or (kept is not None and self._outlives(kept))

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
        """What to go by now that this was said."""
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
