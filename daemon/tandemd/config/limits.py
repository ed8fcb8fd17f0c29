"""What a uid may ask for. An environment variable or a HELLO is a request, never authority."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter

from tandemd.core.memory.ceilings import NONE, Ceiling
from tandemd.core.model import JobClass
from tandemd.identities import Identities


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What is said of somebody; None: nothing."""

    key: str = "limits.default"  # where it is said
    job_class: JobClass | None = None
    memory: Ceiling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings by user and group; the most generous of those that name somebody holds.

    Decided by what the user database said when the uid was met, so at once; one who was not has the
    lowest class, the memory of all or of his number, and is no admin.
    """

    identities: Identities
    default: Limit = Limit()
    users: Mapping[str, Limit] = field(default_factory=dict)
    groups: Mapping[str, Limit] = field(default_factory=dict)
    trusted_uids: frozenset[int] = frozenset({0})
    admin_group: str = "tandem-admin"

    def meet(self, uid: int) -> None:
        """Have the user database say who that is, if it did not lately. May block."""
        if uid not in self.trusted_uids:
            with suppress(OSError):  # then it is as it was
                self.identities.of(uid)

    def user_of(self, uid: int) -> str:
        """The name, or the number of one who was not met."""
        who = self.identities.known(uid)
        return str(uid) if who is None else who.user

    def ceiling(self, uid: int) -> JobClass:
        """The most urgent class the uid may have."""
        if uid in self.trusted_uids:
            return JobClass.LATENCY
        return JobClass.BATCH if self.identities.known(uid) is None else self._class_of(uid)[0]

    def why_class(self, uid: int) -> str:
        """The key of the configuration that says it, or why it is so; empty: he may have any."""
        if uid in self.trusted_uids:
            return ""
        if self.identities.known(uid) is None:
            return "who that is the user database has not said yet"
        return f"{self._class_of(uid)[1]}.max_class"

    def _class_of(self, uid: int) -> tuple[JobClass, str]:
        said = ((one.job_class, one.key) for one in self._named(uid) if one.job_class is not None)
        default = self.default.job_class or JobClass.NORMAL, self.default.key
        return min(said, key=itemgetter(0), default=default)

    def memory_ceiling(self, uid: int) -> Ceiling:
        """What all jobs of the uid may hold together."""
        if uid in self.trusted_uids:
            return NONE
        named = [one.memory for one in self._named(uid) if one.memory is not None]
        return Ceiling.most_generous(named or [self.default.memory or NONE])

    def _named(self, uid: int) -> list[Limit]:
        """What is said of him, by any name."""
        who = self.identities.known(uid)
        names = {str(uid)} if who is None else {who.user, str(uid)}
        groups = frozenset[str]() if who is None else who.groups
        named = [limit for name, limit in self.users.items() if name in names]
        return named + [limit for group, limit in self.groups.items() if group in groups]

    def clamp(self, uid: int, asked: JobClass) -> JobClass:
        """The class the uid gets when it asks for one."""
        return max(asked, self.ceiling(uid))

    def is_admin(self, uid: int) -> bool:
        """May change policy and other people's jobs."""
        if uid in self.trusted_uids:
            return True
        who = self.identities.known(uid)
        return who is not None and self.admin_group in who.groups
