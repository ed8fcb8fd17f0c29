"""How much of each version of cuda.h the preload library covers, counted from the call table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount:
    """How many functions of one class of calls are covered."""

    handled: int  # interposed
    passed: int  # not interposed, for a reason given in the table
    unhandled: int  # not interposed, but should be

    @property
    def functions(self) -> int:
        """How many functions the class has."""
        return self.handled + self.passed + self.unhandled


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderCoverage:
    """How much of one version of cuda.h is covered."""

    functions: int  # how many it declares
    classes: Mapping[str, ClassCount]
    unclassified: tuple[str, ...]  # functions missing from the table
    unhandled: tuple[str, ...]
    not_built: tuple[str, ...]  # handled in the table, but missing from the build's header


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The coverage of all versions that the table was compared with, oldest first."""

    built_with: str  # the version of cuda.h that the library was built with
    headers: Mapping[str, HeaderCoverage]

    @property
    def newest_version(self) -> int:
        """The CUDA_VERSION of the header of the build: 13050."""
        major, minor = self.built_with.split(".")
        return int(major) * 1000 + int(minor) * 10

    @property
    def is_complete(self) -> bool:
        """Whether every function is classified, and interposed where it must be."""
        return not any(h.unclassified or h.unhandled for h in self.headers.values())


def coverage() -> Coverage:
    """The coverage of this installation's library."""
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
