"""`moor demo`: its steps, also when one fails, and what it prints of the pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.cli.commands import demo
from moorage.cluster.claims import Claims
from moorage.cluster.creation import Choices
from moorage.cluster.demo import DemoError, Shown
from moorage.cluster.layout import Layout
from moorage.cluster.start import StartError
from moorage.handlers import Handler
from tests.cli.moor import moor

ROWS = [
    Shown("a", "Running", "gvisor", "runsc", "n1", "10.0.0.2", "4.4", "gVisor", 1.234),
    Shown("b", "Refused", "", "kata", "", "", "", "", None, "no such handler"),
    Shown("c", "Refused", "", "kata", "", "", "", "", None, "no such handler"),
    Shown("d", "Refused", "", "runc", "", "", "", "", None, "too old"),
    Shown("e", "Refused", "", "none", "", "", "", "", None, "unknown"),
]
HANDLERS = (
    Handler(handler="kata", runtime="kata", available=False, reason="no KVM", remedy="turn it on"),
    Handler(handler="runc", runtime="runc", available=True, reason="x", remedy="y"),
)


class Stage:
    """What happens, in order; `failure` comes at the start of the cluster or in the demo."""

    def __init__(self) -> None:
        self.steps: list[object] = []
        self.start_failure: Exception | None = None
        self.failure: Exception | None = None
        self.root = Path()

    async def prepare(self, layout: Layout, *, is_installing: bool) -> tuple[Handler, ...]:
        self.root = layout.root
        assert self.root.is_dir()
        self.steps.append(("prepare", is_installing))
        return HANDLERS

    def opened(self, _layout: Layout, choices: Choices, claims: Claims) -> str:
        self.claims = claims
        self.steps.append(("opened", choices.given()))
        return "settings"

    def start(self, _layout: Layout, within_s: float, uninterrupted: Any, claims: Claims) -> None:
        assert claims is self.claims
        with uninterrupted:
            self.steps.append("start")
        assert within_s > 60
        if self.start_failure is not None:
            raise self.start_failure

    async def run(self, _layout: Layout, say: Any, manifests: list[Any]) -> list[Shown]:
        self.steps.append(("run", len(manifests) > 0))
        say("shown")
        if self.failure is not None:
            raise self.failure
        return ROWS

    def take_down(self, _layout: Layout, settings: str) -> None:
        self.steps.append(("down", settings, self.root.is_dir()))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage()
    monkeypatch.setattr(demo, "prepare_machine", stage.prepare)
    monkeypatch.setattr(demo, "opened", stage.opened)
    monkeypatch.setattr(demo, "start_detached", stage.start)
    monkeypatch.setattr(demo, "_run", stage.run)
    monkeypatch.setattr(demo, "take_down", stage.take_down)
    # Not of root, whose place is /var/lib.
    monkeypatch.setattr(demo.os, "geteuid", lambda: 1000)
    yield stage
    assert not stage.root.is_dir() or stage.root == Path()


STEPS = [
    ("prepare", False), ("opened", {"name": "moorage-demo"}), "start", ("run", True),
    ("down", "settings", True),
]  # fmt: skip


def test_the_whole_path_ends_with_a_table_and_why_some_do_not_run(stage: Stage) -> None:
    answer = moor("demo")
    assert (answer.status, answer.err) == (0, "")
    assert stage.steps == STEPS
    steps, table, refused = answer.out.split("\n\n")
    assert [line.split("s  ", 1)[1] for line in steps.splitlines()] == [
        "starting a cluster", "cluster ready", "shown", "stopped the cluster",
    ]  # fmt: skip
    assert all(0 <= float(line.split()[0]) < 60 for line in steps.splitlines())
    assert table.splitlines()[:3] == [
        "POD   STATUS    CLASS    HANDLER   NODE   IP         KERNEL   INSIDE   START",
        "a     Running   gvisor   runsc     n1     10.0.0.2   4.4      gVisor   1.23 s",
        "b     Refused   (none)   kata      -      -          -        -        -",
    ]
    assert refused.splitlines() == [
        "kata: no such handler", "  no KVM → turn it on", "none: unknown", "runc: too old",
    ]  # fmt: skip


def test_a_document_is_all_that_is_printed(stage: Stage) -> None:
    answer = moor("demo", "--install", "-o", "json")
    rows = json.loads(answer.out)
    assert [row["pod"] for row in rows] == list("abcde")
    assert rows[0]["start_s"] == 1.234
    assert stage.steps[0] == ("prepare", True)


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("error", [DemoError("why"), KeyError("why")])
def test_after_a_failure_everything_is_taken_down(
    stage: Stage, at_start: bool, error: Exception
) -> None:
    if at_start:
        stage.start_failure = StartError("why") if isinstance(error, DemoError) else error
    else:
        stage.failure = error
    if isinstance(error, KeyError):
        with pytest.raises(KeyError):
            moor("demo")
    else:
        answer = moor("demo", "-o", "json")
        assert (answer.status, answer.err, answer.out) == (1, "moor: why\n", "")
    assert stage.steps == [step for step in STEPS if not (at_start and step == ("run", True))]


def test_examples_that_are_none_are_said_before_anything_starts(
    stage: Stage, tmp_path: Path
) -> None:
    assert "there are no examples" in moor("demo", "--examples", tmp_path).err
    (tmp_path / "a.yaml").write_text("kind: [")
    answer = moor("demo", "--examples", tmp_path)
    assert answer.status == 1
    assert "a.yaml" in answer.err
    assert stage.steps == []
