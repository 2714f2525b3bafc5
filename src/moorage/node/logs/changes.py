"""Directory change notification for log followers.

Each follower has an inotify instance of its own. When inotify instances or watches are exhausted,
`wait` returns at its timeout. Source: inotify(7).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

from moorage.linux.inotify import WRITES, Inotify


class DirectoryChanges:
    """Waits for changes in one directory: `with DirectoryChanges(path) as changes`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inotify: Inotify | None = None

    def __enter__(self) -> Self:
        try:
            self._inotify = Inotify(WRITES)
            is_watched = self._inotify.watch(self._path)
        except OSError:
            is_watched = False
        if not is_watched:
            self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    async def wait(self, timeout_s: float) -> None:
        """Return after a change, or after `timeout_s` seconds without one."""
        if self._inotify is None:
            await asyncio.sleep(timeout_s)
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._inotify.changes()
        except TimeoutError:
            return
