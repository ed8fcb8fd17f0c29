"""What the preload library covers of each version of cuda.h: the table of calls, counted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount:
    """The functions of one class of calls."""

    handled: int  # interposed
    passed: int  # let through, for a reason that the table gives
    unhandled: int  # let through, and should not be

    @property
    def functions(self) -> int:
        """All of them."""
        return self.handled + self.passed + self.unhandled


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderCoverage:
    """One version of cuda.h."""

    functions: int  # that it declares
    classes: Mapping[str, ClassCount]
    unclassified: tuple[str, ...]  # functions that the table does not know
    unhandled: tuple[str, ...]
    not_built: tuple[str, ...]  # the table handles them; the header of the build lacks them


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """All versions that the table was held against, oldest first."""

    built_with: str  # the version of cuda.h from which the library was built
    headers: Mapping[str, HeaderCoverage]

    @property
    def newest_version(self) -> int:
        """The CUDA_VERSION of the build's header: 13050."""
        major, minor = self.built_with.split(".")
        return int(major) * 1000 + int(minor) * 10

    @property
    def is_complete(self) -> bool:
        """Whether every function is classified, and seen where it must be."""
        return not any(h.unclassified or h.unhandled for h in self.headers.values())


def coverage() -> Coverage:
    """Of the library of this installation."""
    from tandem._native import CALL_COVERAGE

    value = json.loads(CALL_COVERAGE)
    headers = {
        version: HeaderCoverage(
            functions=row["functions"],
            classes={name: ClassCount(**counts) for name, counts in row["classes"].items()},
            unclassified=tuple(row["unclassified"]),
            unhandled=tuple(row["unhandled"]),
            not_built=tuple(row["not_built"]),
        )
        for version, row in value["headers"].items()
    }
    return Coverage(built_with=value["built_with"], headers=headers)
