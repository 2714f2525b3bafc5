"""Ages, and the cells of every kind but pods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.clock import parse_time
from moorage.apiserver.registry.columns.cells import age, duration_text
from moorage.apiserver.registry.kind import Printer
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.kinds.endpoints import shortened

CREATED = "2026-01-01T00:00:00Z"


NOW = parse_time(CREATED).timestamp() + 90


PRINTERS = {kind.name: kind.printer for kind in STORED_KINDS if kind.printer is not None}


M, H, D, Y = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (0.9, "0s"), (119, "119s"), (120, "2m"),
        (150, "2m30s"), (10 * M - 1, "9m59s"), (10 * M, "10m"), (3 * H - 1, "179m"), (3 * H, "3h"),
        (3 * H + 20 * M, "3h20m"), (8 * H - 1, "7h59m"), (8 * H, "8h"), (48 * H - 1, "47h"),
        (48 * H, "2d"), (2 * D + 5 * H, "2d5h"), (8 * D - 1, "7d23h"), (8 * D, "8d"),
        (2 * Y - 1, "729d"), (2 * Y, "2y"), (2 * Y + 40 * D, "2y40d"), (8 * Y, "8y"),
        (9 * Y + D, "9y"),
    ],
)  # fmt: skip
def test_how_long_ago(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(0, 20 * Y), st.floats(0, 20 * Y))
def test_duration_text_is_monotonic(left: float, right: float) -> None:
    def seconds_of(text: str) -> int:
        total, number = 0, ""
        for char in text:
            if char.isdigit():
                number += char
            else:
                total += int(number) * {"s": 1, "m": M, "h": H, "d": D, "y": Y}[char]
                number = ""
        return total

    low, high = sorted((left, right))
    assert seconds_of(duration_text(low)) <= seconds_of(duration_text(high))
    assert seconds_of(duration_text(high)) <= high


@pytest.mark.parametrize("timestamp", [None, ""])
def test_no_time_is_an_unknown_age(timestamp: str | None) -> None:
    assert age(timestamp, NOW) == "<unknown>"


def test_long_lists_are_cut() -> None:
    assert shortened([]) == ""
    assert shortened(["a", "b", "c"]) == "a,b,c"
    assert shortened(["a", "b", "c", "d", "e"]) == "a,b,c + 2 more..."


@pytest.mark.parametrize("printer", PRINTERS.values(), ids=PRINTERS)
def test_a_bookmarks_row_has_all_its_cells(printer: Printer) -> None:
    assert len(printer.cells({"metadata": {"resourceVersion": "1"}}, 0.0)) == len(printer.columns)
