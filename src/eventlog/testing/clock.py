"""A clock that stands still until it is told."""

from __future__ import annotations

__all__ = ["FakeClock"]


class FakeClock:
    """Both clocks, for tests: time passes when `advance` says so, and not otherwise.

    Args:
        monotonic, wall: Where they start, in ns.
    """

    def __init__(
        self, monotonic: int = 1_000_000_000, wall: int = 1_700_000_000_000_000_000
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic_ns(self) -> int:
        """Return nanoseconds of the clock that never goes back."""
        return self._monotonic

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970-01-01 UTC."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"seconds must be 0 or more, not {seconds!r}")
        nanoseconds = round(seconds * 1e9)
        self._monotonic += nanoseconds
        self._wall += nanoseconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back, as an administrator or NTP does."""
        self._wall += round(seconds * 1e9)
