"""Processor time and memory of a process and of all that it started."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import psutil

EVERY = 0.5


class Tree:
    """Watches a process and its descendants, also those that lose their parent.

    Memory is the sum of what is resident; pages that processes share count in each. Processor time
    of a process that has ended is known where its parent has waited for it, or else as it was when
    it was last seen.

    Attributes:
        peak: The most memory that was seen at one time, in bytes.
        cpu: Seconds of processor time of all but the first process.
        all: And of all.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: dict[int, psutil.Process] = {pid: self._root}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.peak = 0
        self.cpu = self.all = 0.0

    def look(self) -> tuple[float, int]:
        """Look at all of them.

        Returns:
            The seconds of processor time that all but the first have used so far, and the bytes
            of memory of all now. The first one knows its own time better than to 10 ms.
        """
        with self._lock:
            for process in list(self._known.values()):
                with contextlib.suppress(psutil.Error):
                    for child in process.children(recursive=True):
                        self._known.setdefault(child.pid, child)
            cpu, own, memory = 0.0, 0.0, 0
            for process in list(self._known.values()):
                with contextlib.suppress(psutil.Error):
                    if process.is_running():
                        times = process.cpu_times()
                        if process is self._root:
                            own = times.user + times.system
                        else:
                            cpu += times.user + times.system
                        cpu += times.children_user + times.children_system
                        memory += process.memory_info().rss
            self.peak, self.cpu = max(self.peak, memory), max(self.cpu, cpu)
            self.all = self.cpu + own
            return self.cpu, memory

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look twice a second, on a thread."""

        def watch() -> None:
            while not self._over.wait(EVERY):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def others(self) -> list[psutil.Process]:
        """Return the descendants that are alive."""
        self.look()
        return [p for p in self._known.values() if p.pid != self._root.pid and _alive(p)]

    def settle(self, seconds: float, root: bool = True) -> bool:
        """Wait until hardly any processor time is used; False where that takes too long.

        Args:
            seconds: How long at most.
            root: Whether the first process counts: one that was killed does not.
        """
        end = time.monotonic() + seconds
        quiet = 0
        self.look()
        last = self.all
        while time.monotonic() < end:
            if not root and not self.others():
                return True
            time.sleep(0.2)
            self.look()
            quiet = quiet + 1 if self.all - last <= 0.02 else 0  # two ticks of the kernel's clock
            last = self.all
            if quiet == 2:
                return True
        return False

    def end(self) -> None:
        """End all that is left, by its id."""
        left = [*self.others(), *([self._root] if _alive(self._root) else [])]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
