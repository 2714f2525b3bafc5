"""Screen of `moor top`: keys, order, filter, and the lines of a small terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cli.screen import COLUMNS, HELP, Screen
from moorage.inspect.top import ClassRow

ROWS = [
    ClassRow(runtime_class="crun", handler="crun", pods=3, start_p50_ms=63.0, is_exact=True),
    ClassRow(runtime_class="gvisor", handler="runsc", pods=9, start_p50_ms=4000.0,
             overhead_used_bytes=2**20, overhead_declared_bytes=2**25),
    ClassRow(runtime_class="kata", handler="kata", pods=3),
]  # fmt: skip


def press(*keys: str) -> Screen:
    screen = Screen()
    for key in keys:
        screen = screen.press(key)
    return screen


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ((), "crun gvisor kata"),
        (("r",), "kata gvisor crun"),
        # Pods: the most first, equals by name.
        (("RIGHT", "RIGHT"), "gvisor crun kata"),
        (("RIGHT", "RIGHT", "r"), "crun kata gvisor"),
        (("LEFT",) * (len(COLUMNS) - 2), "gvisor crun kata"),
        (("s",) * len(COLUMNS), "crun gvisor kata"),
        (("/", "r", "u", "n", "ENTER"), "crun gvisor"),
        (("/", "x", "BACKSPACE", "k", "ENTER"), "kata"),
        (("/", "k", "ENTER", "ESC"), "crun gvisor kata"),
        (("/", "k", "ESC"), "crun gvisor kata"),
        (("/", "q"), ""),
        (("x", "", "é"), "crun gvisor kata"),
    ],
)
def test_keys_choose_order_and_filter(keys: tuple[str, ...], expected: str) -> None:
    assert " ".join(row.runtime_class for row in press(*keys).selected(ROWS)) == expected


def test_q_ends_unless_it_is_typed_into_the_filter() -> None:
    assert press("q").is_over
    assert not press("/", "q").is_over
    assert press(" ").is_paused
    assert not press(" ", " ").is_paused


def test_the_lines_of_a_table() -> None:
    lines = Screen().lines(ROWS, 200, 20)
    assert lines[0] == "3 classes · 15 pods · 0.00 starts/s · 0 failed"
    assert lines[2].split()[:3] == ["CLASS▲", "HANDLER", "PODS"]
    assert lines[3].split() == ["crun", "crun", "3", "0", "0", "0", "0", "0.00", "63", "ms", "-",
                                "-/-", "-", "-"]  # fmt: skip
    assert "4 s ±1" in lines[4]
    assert "1.0Mi/32.0Mi" in lines[4]
    assert lines[-1] == HELP
    assert press("/", "k").lines(ROWS, 200, 20)[-1] == "filter: k_"


@given(
    st.lists(st.sampled_from(["LEFT", "RIGHT", "r", "/", "k", "ESC", "ENTER", "BACKSPACE", " "])),
    st.integers(0, 120),
    st.integers(0, 12),
)
def test_lines_fit_into_any_terminal(keys: list[str], width: int, height: int) -> None:
    lines = press(*keys).lines(ROWS, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


@given(st.lists(st.text(max_size=3)))
def test_any_keys_can_be_pressed(keys: list[str]) -> None:
    assert len(press("/", *keys).filter) <= 60
