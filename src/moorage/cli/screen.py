"""Screen of `moor top`: what keys do, and which lines are shown. Pure.

A column is chosen to sort by, a text to filter classes and handlers by. The terminal is drawn by
`terminal.py`.
"""

from __future__ import annotations

import asyncio
import curses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from moorage.api.text import counted, printable
from moorage.inspect.top import ClassRow
from moorage.runtimeclass.start_phases import duration_words

HELP = "q quit · ←→ sort column · r reverse · / filter · space pause"
_GAP = "  "
_MOST_FILTER = 60
SORT_LEFT, SORT_RIGHT, ESCAPE, ENTER, BACKSPACE = "LEFT", "RIGHT", "ESC", "ENTER", "BACKSPACE"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, the text of a row, and what rows are sorted by."""

    title: str
    text: Callable[[ClassRow], str]
    key: Callable[[ClassRow], Any]


def _number(name: str) -> Callable[[ClassRow], float]:
    def key(row: ClassRow) -> float:
        value = getattr(row, name)
        return -1.0 if value is None else float(value)

    return key


def _ms(ms: float | None, *, is_exact: bool) -> str:
    if ms is None:
        return "-"
    return duration_words(ms) if is_exact else f"{ms / 1000:.0f} s ±1"


def _mib(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / 2**20:.1f}Mi"


def _overhead(row: ClassRow) -> str:
    return f"{_mib(row.overhead_used_bytes)}/{_mib(row.overhead_declared_bytes)}"


COLUMNS = (
    Column("CLASS", lambda row: row.runtime_class, lambda row: row.runtime_class),
    Column("HANDLER", lambda row: row.handler or "-", lambda row: row.handler),
    Column("PODS", lambda row: str(row.pods), _number("pods")),
    Column("READY", lambda row: str(row.running), _number("running")),
    Column("PENDING", lambda row: str(row.pending), _number("pending")),
    Column("FAILED", lambda row: str(row.failed), _number("failed")),
    Column("RESTARTS", lambda row: str(row.restarts), _number("restarts")),
    Column("STARTS/S", lambda row: f"{row.starts_per_s:.2f}", _number("starts_per_s")),
    Column("START P50", lambda row: _ms(row.start_p50_ms, is_exact=row.is_exact),
           _number("start_p50_ms")),
    Column("P90", lambda row: _ms(row.start_p90_ms, is_exact=row.is_exact),
           _number("start_p90_ms")),
    Column("OVERHEAD", _overhead, _number("overhead_used_bytes")),
    Column("MEMORY", lambda row: _mib(row.memory_bytes), _number("memory_bytes")),
    Column("CPU", lambda row: "-" if row.cpu_cores is None else f"{row.cpu_cores:.2f}",
           _number("cpu_cores")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Screen:
    """What the keys have set."""

    column: int = 0
    is_reversed: bool = False
    filter: str = ""
    is_typing: bool = False
    is_paused: bool = False
    is_over: bool = False

    def press(self, key: str) -> Screen:
        """Return the screen after a key: a character, or LEFT, RIGHT, ESC, ENTER, BACKSPACE."""
        if self.is_typing:
            return self._type(key)
        match key:
            case "q":
                return replace(self, is_over=True)
            case "LEFT" | "<":
                return replace(self, column=(self.column - 1) % len(COLUMNS))
            case "RIGHT" | ">" | "s":
                return replace(self, column=(self.column + 1) % len(COLUMNS))
            case "r":
                return replace(self, is_reversed=not self.is_reversed)
            case "/":
                return replace(self, is_typing=True)
            case " ":
                return replace(self, is_paused=not self.is_paused)
            case "ESC":
                return replace(self, filter="")
            case _:
                return self

    def _type(self, key: str) -> Screen:
        if key == ENTER:
            return replace(self, is_typing=False)
        if key == ESCAPE:
            return replace(self, is_typing=False, filter="")
        if key == BACKSPACE:
            return replace(self, filter=self.filter[:-1])
        if len(key) == 1 and key.isprintable() and len(self.filter) < _MOST_FILTER:
            return replace(self, filter=self.filter + key)
        return self

    def selected(self, rows: Sequence[ClassRow]) -> list[ClassRow]:
        """Return the rows that pass the filter, sorted; numbers begin with the largest."""
        kept = [
            row for row in rows if self.filter in row.runtime_class or self.filter in row.handler
        ]
        column = COLUMNS[self.column]
        begins_high = self.column > 1
        # Rows that are equal in the column stay in the order of their names.
        kept.sort(key=lambda row: row.runtime_class)
        kept.sort(key=column.key, reverse=begins_high != self.is_reversed)
        return kept

    def lines(self, rows: Sequence[ClassRow], width: int, height: int) -> list[str]:
        """Return the lines to show, at most `height` of at most `width` characters."""
        shown = self.selected(rows)
        cells = [[printable(column.text(row)) for column in COLUMNS] for row in shown]
        mark = "▲" if (self.column > 1) == self.is_reversed else "▼"
        heads = [
            column.title + (mark if index == self.column else "")
            for index, column in enumerate(COLUMNS)
        ]
        widths = [max(map(len, texts)) for texts in zip(heads, *cells, strict=True)]
        lines = [self._status(rows), "", *(_line(texts, widths) for texts in (heads, *cells))]
        body = lines[: max(0, height - 1)]
        foot = f"filter: {self.filter}_" if self.is_typing else HELP
        return [line[:width] for line in (*body, foot)][:height]

    def _status(self, rows: Sequence[ClassRow]) -> str:
        words = [
            counted(len(rows), "class", "classes"),
            counted(sum(row.pods for row in rows), "pod"),
            f"{sum(row.starts_per_s for row in rows):.2f} starts/s",
            f"{sum(row.failed for row in rows)} failed",
        ]
        if self.filter:
            words.append(f"filter {self.filter!r}")
        if self.is_paused:
            words.append("paused")
        return " · ".join(words)


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    # Names to the left, numbers to the right.
    aligned = [
        text.ljust(width) if index < 2 else text.rjust(width)
        for index, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]
    return _GAP.join(aligned).rstrip()


# Terminal of `moor top`: draws lines and reads keys with curses, in an event loop.

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
