"""What a uid may ask for. An environment variable or a HELLO is a request, never authority."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tandemd.core.model import JobClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user and the groups the user database gives it, looked up here and never by the client."""

    uid: int
    user: str
    groups: frozenset[str]


def identity_of(uid: int) -> Identity:
    """Look a uid up; unknown ones have no name but their number, and no groups."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Identity(uid=uid, user=str(uid), groups=frozenset())
    names = set()
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return Identity(uid=uid, user=entry.pw_name, groups=frozenset(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings by user and group; the most generous of those that name somebody holds."""

    default: JobClass = JobClass.NORMAL
    users: Mapping[str, JobClass] = field(default_factory=dict)
    groups: Mapping[str, JobClass] = field(default_factory=dict)
    trusted_uids: frozenset[int] = frozenset({0})
    admin_group: str = "tandem-admin"
    identify: Callable[[int], Identity] = identity_of

    def ceiling(self, uid: int) -> JobClass:
        """The most urgent class the uid may have."""
        if uid in self.trusted_uids:
            return JobClass.LATENCY
        who = self.identify(uid)
        named = [self.users[k] for k in (who.user, str(uid)) if k in self.users]
        named += [limit for group, limit in self.groups.items() if group in who.groups]
        return min(named, default=self.default)

    def clamp(self, uid: int, asked: JobClass) -> JobClass:
        """The class the uid gets when it asks for one."""
        return max(asked, self.ceiling(uid))

    def is_admin(self, uid: int) -> bool:
        """May change policy and other people's jobs."""
        return uid in self.trusted_uids or self.admin_group in self.identify(uid).groups
