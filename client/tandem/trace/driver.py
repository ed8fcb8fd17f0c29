"""The software GPU's driver through ctypes, with just what playing a recording needs."""

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

Word = ctypes.c_uint64


class PlayError(RuntimeError):
    """A call failed without which nothing can be played.

    Not raised for calls of the recording itself: their failures are counted.
    """


class Driver:
    """Makes driver calls by name, and counts those that the driver refuses."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._now_ns = self._library.softgpu_now_ns
        self._now_ns.restype = Word
        for hook in ("softgpu_wait_begin", "softgpu_wait_end", "softgpu_wait_until_ns"):
            getattr(self._library, hook).restype = None
        self.refused: Counter[str] = Counter()

    def now_ns(self) -> int:
        """The time on the device's clock."""
        return int(self._now_ns())

    def sleep_until(self, deadline_ns: int) -> None:
        """Sleep until a time on the device's clock."""
        self._library.softgpu_wait_until_ns(Word(deadline_ns))

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Enclose a wait that the driver does not see: virtual time may pass meanwhile."""
        self._library.softgpu_wait_begin()
        try:
            yield
        finally:
            self._library.softgpu_wait_end()

    def attempt(self, name: str, *arguments: object) -> int:
        """Make a call and return its result."""
        return int(getattr(self._library, name)(*arguments))

    def call(self, name: str, *arguments: object) -> bool:
        """Make a call, count it if it is refused, and return whether it succeeded."""
        if result := self.attempt(name, *arguments):
            self.refused[f"{name}: {self._error_name(result)}"] += 1
        return result == 0

    def made(self, name: str, *arguments: object) -> Word:
        """Return the handle or address that a call writes through its first parameter.

        Raises:
            PlayError: the call fails.
        """
        made = Word()
        if result := self.attempt(name, ctypes.byref(made), *arguments):
            msg = f"{name} fails with {self._error_name(result)}"
            raise PlayError(msg)
        return made

    def _error_name(self, result: int) -> str:
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(result, ctypes.byref(name))
        return name.value.decode() if name.value else str(result)
