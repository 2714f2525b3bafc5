"""What `moor down` takes off a host for each kind of cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cluster import clearing
from moorage.cluster.clearing import Step, steps_of
from moorage.cluster.errors import LeftoverError
from moorage.cluster.layout import Layout
from moorage.cluster.settings import save
from tests.cluster.test_settings import SETTINGS

OTHER = "unix:///run/x.sock"


PODS, PORTS, OWN = Step.END_PODS, Step.UNPROTECT, Step.OWN_ENGINE


@pytest.mark.parametrize(
    ("used", "changes", "options", "steps"),
    [
        ("", {}, {}, {OWN}),
        (None, {}, {}, {OWN}),
        (OTHER, {"cri": OTHER}, {}, {PODS, PORTS}),
        (None, {"cri": OTHER}, {}, {PORTS}),
        ("", {"cri": OTHER}, {}, {PORTS, OWN}),
        (None, {"cri": OTHER}, {"has_run": True}, {PORTS, OWN}),
        (OTHER, {}, {}, {PODS, OWN}),
        (None, {"has_node": False}, {}, {PORTS}),
        ("", {"has_node": False}, {}, {PORTS, OWN}),
        # Pods of another engine can be left to it.
        (OTHER, {"cri": OTHER}, {"abandons_pods": True}, {PORTS}),
    ],
)
def test_pods_end_where_they_were_left(
    used: str | None, changes: dict[str, Any], options: dict[str, bool], steps: set[Step]
) -> None:
    settings = msgspec.structs.replace(SETTINGS, **changes)
    assert steps_of(used, settings, **({"abandons_pods": False, "has_run": False} | options)) == (
        steps
    )


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "a b")


@pytest.mark.parametrize("abandons_pods", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "output"),
    [
        (None, 0, ""),
        (LeftoverError("pod a stays"), 1, "pod a stays\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_the_process_that_clears_the_host(
    layout: Layout,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    status: int,
    output: str,
    abandons_pods: bool,
) -> None:
    calls: list[Any] = []

    async def clear(*arguments: Any, abandons_pods: bool) -> None:
        calls.append((*arguments, abandons_pods))
        if error is not None:
            raise error

    layout.root.mkdir()
    save(layout.settings, SETTINGS)
    argv = [str(layout.root), *(["--abandon-pods"] if abandons_pods else [])]
    assert clearing.main(argv, clear, calls.append) == status
    assert calls == ["warning", (layout, SETTINGS, abandons_pods)]
    assert capsys.readouterr().out == output


def test_without_settings_no_host_is_cleared(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clearing.main([str(layout.root)]) == 1
    assert capsys.readouterr().out == f"{layout.settings}: no such file\n"


def test_the_module_is_a_program(layout: Layout) -> None:
    argv = [sys.executable, "-m", "moorage.cluster.clearing", str(layout.root)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, f"{layout.settings}: no such file\n")
