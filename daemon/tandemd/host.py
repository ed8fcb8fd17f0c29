"""Memory and files of the host, as `edges/homes.py` asks for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tandemd.edges.homes import Copied
from tandemd.edges.host_files import HostFiles
from tandemd.edges.host_memory import make_memory
from tandemd.edges.host_pool import HostPools, Taker


class Host:
    """Belongs to the loop's thread, but for `use`."""

    def __init__(
        self,
        *,
        directory: Path | None,
        post: Callable[[Callable[[], None]], None],
        at_once: bool,
    ) -> None:
        """`directory` is where files go; None: nowhere. The others as for `HostPools`.

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
        """Make files there from now on; those that there are stay.

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
        """A sealed memfd of `count` bytes for `taker`, near that NUMA node, or None."""
        self._pools.want(count, node, taker)

    def want_copy(
        self, memory: int, count: int, taker: Callable[[Copied | str], None]
    ) -> Callable[[], None]:
        """A file with what is in `memory`, or why there is none; what is returned ends it early."""
        _, files = self._files
        if files is not None:
            return files.want(memory, count, taker)
        self._post(lambda: taker("swap_dir is not set any more"))
        return lambda: None

    def drop(self, fd: int, *, emptied: bool) -> None:
        """Close it, and take from whoever has it, too, what is in it if it is to be emptied."""
        self._pools.drop(fd, emptied=emptied)
