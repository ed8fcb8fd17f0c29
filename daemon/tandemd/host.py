"""Host memory and files, in the form that `edges/homes.py` asks for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tandemd.edges.homes import Copied
from tandemd.edges.host_files import HostFiles
from tandemd.edges.host_memory import make_memory
from tandemd.edges.host_pool import HostPools, Taker


class Host:
    """Provides pools and copies. Belongs to the loop's thread, except for `use`."""

    def __init__(
        self,
        *,
        directory: Path | None,
        post: Callable[[Callable[[], None]], None],
        at_once: bool,
    ) -> None:
        """`directory` is where files are made; None: nowhere. The rest is as for `HostPools`.

        Raises:
            UsageError: no file can be made in the directory.
        """
        self._post = post
        self._at_once = at_once
        self._pools = HostPools(
            make=lambda count, node: make_memory(count, node=node), post=post, at_once=at_once
        )
        self._files: tuple[Path | None, HostFiles | None] = (None, None)
        self.use(directory)

    def use(self, directory: Path | None) -> None:
        """Make files in this directory from now on; existing ones stay where they are.

        Raises:
            UsageError: no file can be made in the directory; nothing has changed.
        """
        if directory == self._files[0]:
            return
        files = None
        if directory is not None:
            files = HostFiles(directory, post=self._post, at_once=self._at_once)
        self._files = (directory, files)

    def want_pool(self, count: int, node: int | None, taker: Taker) -> None:
        """Give `taker` a sealed memfd of `count` bytes near that NUMA node, or None."""
        self._pools.want(count, node, taker)

    def want_copy(
        self, memory: int, count: int, taker: Callable[[Copied | str], None]
    ) -> Callable[[], None]:
        """Give `taker` a file copy of `memory`, or why there is none; returns what cancels it."""
        _, files = self._files
        if files is not None:
            return files.want(memory, count, taker)
        self._post(lambda: taker("swap_dir is no longer set"))
        return lambda: None

    def drop(self, fd: int, *, emptied: bool) -> None:
        """Close `fd`; if `emptied`, also discard its contents for all others that have it open."""
        self._pools.drop(fd, emptied=emptied)
