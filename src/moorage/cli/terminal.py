"""Terminal of `moor top`: draws lines and reads keys with curses, in an event loop."""

from __future__ import annotations

import asyncio
import curses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moorage.cli.screen import BACKSPACE, ENTER, ESCAPE, SORT_LEFT, SORT_RIGHT

_KEYS = {
    curses.KEY_LEFT: SORT_LEFT,
    curses.KEY_RIGHT: SORT_RIGHT,
    curses.KEY_BACKSPACE: BACKSPACE,
    curses.KEY_ENTER: ENTER,
    27: ESCAPE,
    127: BACKSPACE,
    8: BACKSPACE,
    10: ENTER,
    13: ENTER,
}
_HEAD = 2


class Terminal:
    """A terminal in full-screen mode. `on_key` is called for each key, also for a resize."""

    def __init__(self, window: Any) -> None:
        self._window = window

    def draw(self, lines: list[str]) -> None:
        """Show lines, and nothing else."""
        self._window.erase()
        height, width = self.size
        for number, line in enumerate(lines[:height]):
            style = curses.A_BOLD if number == _HEAD else curses.A_NORMAL
            try:
                self._window.addnstr(number, 0, line, width - 1, style)
            except curses.error:
                # The terminal was made smaller since `size`.
                break
        self._window.refresh()

    @property
    def size(self) -> tuple[int, int]:
        """The number of lines and of columns."""
        height, width = self._window.getmaxyx()
        return height, width

    def follow(self, on_key: Callable[[str], None]) -> None:
        """Call a function with each key from now on, until the loop ends."""
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read, on_key)

    def unfollow(self) -> None:
        """Stop reading keys."""
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def _read(self, on_key: Callable[[str], None]) -> None:
        while True:
            try:
                key = self._window.get_wch()
            except curses.error:
                return
            if key == curses.KEY_RESIZE:
                on_key("")
            elif isinstance(key, int):
                on_key(_KEYS.get(key, ""))
            else:
                on_key(_KEYS.get(ord(key), key))


@contextmanager
def full_screen() -> Iterator[Terminal]:
    """Switch the terminal to full-screen mode, and back at the end."""
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        curses.set_escdelay(25)
        window.keypad(True)
        window.nodelay(True)
        try:
            curses.curs_set(0)
        except curses.error:
            # This terminal cannot hide its cursor.
            window.leaveok(True)
        yield Terminal(window)
    finally:
        window.keypad(False)
        curses.nocbreak()
        curses.echo()
        curses.endwin()
