"""What the helper does for each question."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import assert_never

from tandem.errors import UsageError
from tandemd import __version__
from tandemd.core.space.layouts import Layout
from tandemd.edges.mig import MigLayouts
from tandemd.helper.wire import Answer, CutGpu, Hello, Questions


class Verbs:
    """`do` is for any thread."""

    def __init__(self) -> None:
        self._cutting = threading.Lock()

    def do(self, question: Questions, descriptors: Sequence[int]) -> Answer:
        """Do it, which may take minutes.

        Raises:
            TandemError: it was not done; the text says why.
        """
        if descriptors:
            raise UsageError(f"{question.verb} takes no descriptor")
        match question:
            case Hello():
                return Answer(version=__version__)
            case CutGpu():
                return self._cut(question)
            case _:
                assert_never(question)

    def _cut(self, question: CutGpu) -> Answer:
        """All or nothing; NVML says which GPUs and profiles there are, and whether one is used."""
        layout = Layout(gpu=question.gpu, profiles=question.profiles)
        with self._cutting:
            return Answer(cut=MigLayouts().apply(layout))
