"""A process that ends with the one that started it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from moorage.linux import libc
from moorage.linux import own_process as parent_death


@pytest.mark.parametrize(
    ("answer", "parents", "killed"), [(0, [5, 5], []), (0, [5, 1], [15]), (-1, [5], None)]
)
def test_a_process_dies_with_its_parent(
    monkeypatch: pytest.MonkeyPatch, answer: int, parents: list[int], killed: list[int] | None
) -> None:
    asked: list[tuple[int, ...]] = []
    signals: list[int] = []
    fake = SimpleNamespace(prctl=lambda *arguments: (asked.append(arguments), answer)[1])
    monkeypatch.setattr(libc, "_libc", fake)
    monkeypatch.setattr(os, "getppid", lambda: parents.pop(0))
    monkeypatch.setattr(os, "kill", lambda _, number: signals.append(number))
    if killed is None:
        with pytest.raises(OSError, match="PR_SET_PDEATHSIG"):
            parent_death.die_with_parent()
    else:
        parent_death.die_with_parent()
        assert signals == killed
    assert asked == [(1, 15, 0, 0, 0)]
