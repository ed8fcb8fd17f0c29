"""The device memory of a process, by address."""

from bisect import bisect_right, insort


class Allocations:
    """What is allocated now. Looking up takes logarithmic time."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}

    def add(self, address: int, size_bytes: int) -> None:
        """From now on it is there."""
        if address not in self._sizes:
            insort(self._starts, address)
        self._sizes[address] = size_bytes

    def remove(self, address: int) -> int:
        """It is gone; how large it was, 0 if it was not known."""
        size = self._sizes.pop(address, 0)
        at = bisect_right(self._starts, address) - 1
        if at >= 0 and self._starts[at] == address:
            del self._starts[at]
        return size

    def holding(self, address: int) -> tuple[int, int] | None:
        """Begin and size in bytes of the one that an address lies in."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        start = self._starts[at]
        size = self._sizes[start]
        return (start, size) if address < start + size else None
