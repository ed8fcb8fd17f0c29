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
    """One section's limits; None: not set."""

    key: str = "limits.default"  # of the section
    job_class: JobClass | None = None
    memory: Ceiling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings by user and group; of those that apply to a user the most generous counts.

    Decisions use what the user database said when the uid was met, so they never block. A uid that
    was never met has the lowest class and the memory limit of the default or of its number, and is
    no admin.
    """

    identities: Identities
    default: Limit = Limit()
    users: Mapping[str, Limit] = field(default_factory=dict)
    groups: Mapping[str, Limit] = field(default_factory=dict)
    trusted_uids: frozenset[int] = frozenset({0})
    admin_group: str = "tandem-admin"

    def meet(self, uid: int) -> None:
        """Have the user database look the uid up, unless it did lately. May block."""
        if uid not in self.trusted_uids:
            with suppress(OSError):  # then the last answer stays
                self.identities.of(uid)

    def user_of(self, uid: int) -> str:
        """Return the user's name, or the uid as text if it was never met."""
        who = self.identities.known(uid)
        return str(uid) if who is None else who.user

    def ceiling(self, uid: int) -> JobClass:
        """Return the most urgent class that the uid may have."""
        if uid in self.trusted_uids:
            return JobClass.LATENCY
        return JobClass.BATCH if self.identities.known(uid) is None else self._class_of(uid)[0]

    def why_class(self, uid: int) -> str:
        """Return the configuration key of the ceiling, or another reason; empty: no ceiling."""
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
        """Return what all jobs of the uid may hold together."""
        if uid in self.trusted_uids:
            return NONE
        named = [one.memory for one in self._named(uid) if one.memory is not None]
        return Ceiling.most_generous(named or [self.default.memory or NONE])

    def _named(self, uid: int) -> list[Limit]:
        """Return the limits for the user, by name, uid or group."""
        who = self.identities.known(uid)
        names = {str(uid)} if who is None else {who.user, str(uid)}
        groups = frozenset[str]() if who is None else who.groups
        named = [limit for name, limit in self.users.items() if name in names]
        return named + [limit for group, limit in self.groups.items() if group in groups]

    def clamp(self, uid: int, asked: JobClass) -> JobClass:
        """Return the class that the uid gets when it asks for one."""
        return max(asked, self.ceiling(uid))

    def is_admin(self, uid: int) -> bool:
        """Tell whether the uid may change the policy and other users' jobs."""
        if uid in self.trusted_uids:
            return True
        who = self.identities.known(uid)
        return who is not None and self.admin_group in who.groups
