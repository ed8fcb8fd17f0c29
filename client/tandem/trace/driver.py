"""The software GPU's driver by ctypes: no more of it than playing a recording takes."""

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

Word = ctypes.c_uint64


class PlayError(RuntimeError):
    """A call without which nothing can be played fails.

    Not raised for what a recording asks for: that is counted.
    """


class Driver:
    """Calls by name; counts what is refused."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._now_ns = self._library.softgpu_now_ns
        self._now_ns.restype = Word
        for hook in ("softgpu_wait_begin", "softgpu_wait_end", "softgpu_wait_until_ns"):
            getattr(self._library, hook).restype = None
        self.refused: Counter[str] = Counter()

    def now_ns(self) -> int:
        """The device's time."""
        return int(self._now_ns())

    def sleep_until(self, deadline_ns: int) -> None:
        """Wait on the device's clock."""
        self._library.softgpu_wait_until_ns(Word(deadline_ns))

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Around a wait that the driver does not see: virtual time may pass meanwhile."""
        self._library.softgpu_wait_begin()
        try:
            yield
        finally:
            self._library.softgpu_wait_end()

    def attempt(self, name: str, *arguments: object) -> int:
        """Make a call; its result."""
        return int(getattr(self._library, name)(*arguments))

    def call(self, name: str, *arguments: object) -> bool:
        """Make a call, count it if it is refused; whether it was not."""
        if result := self.attempt(name, *arguments):
            self.refused[f"{name}: {self._error_name(result)}"] += 1
        return result == 0

    def made(self, name: str, *arguments: object) -> Word:
        """The handle or address that a call returns through its first parameter.

        Raises:
            PlayError: it fails.
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
