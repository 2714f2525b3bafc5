"""The supervisor's process: what it prints when the cluster is ready and when it is stopped."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from moorage.cluster import supervise
from moorage.cluster.layout import Layout
from moorage.cluster.settings import SettingsError, save
from moorage.cluster.supervisor import NOTIFY_VARIABLE, READY_MESSAGE, Part
from tests.cluster.test_settings import SETTINGS

_READY = f"echo {READY_MESSAGE.decode().strip()} >&$" + NOTIFY_VARIABLE


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    """A cluster with one part, ready at once."""
    layout = Layout(tmp_path / "data")
    layout.root.mkdir()
    umask = os.umask(0o022)
    yield layout
    os.umask(umask)


def _run(layout: Layout, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> int:
    """Run the supervisor, and send it a signal as soon as it reports readiness."""
    part = Part("one", "one", ("/bin/bash", "-c", f"{_READY}; exec sleep 1000"))
    monkeypatch.setattr(supervise, "parts_of", lambda *_: (part,))
    read_end, write_end = os.pipe()
    monkeypatch.setenv(NOTIFY_VARIABLE, str(write_end))

    def stop() -> None:
        os.read(read_end, 64)
        os.kill(os.getpid(), number)

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        return supervise.main([str(layout.root), ""])
    finally:
        stopper.join()
        os.close(read_end)


@pytest.mark.parametrize(
    ("has_node", "farewell"),
    [
        (True, "stopped; the pods go on running: `moor up --data-dir {0}` takes them over, "
               "`moor down --data-dir {0}` ends them"),
        (False, "stopped; `moor up --data-dir {0}` resumes the cluster"),
    ],
)  # fmt: skip
def test_a_ready_cluster_says_how_it_is_used_and_ctrl_c_what_is_left(
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    has_node: bool,
    farewell: str,
) -> None:
    save(layout.settings, msgspec.structs.replace(SETTINGS, has_node=has_node))
    assert _run(layout, monkeypatch, signal.SIGINT) == 0
    said = capfd.readouterr()
    assert said.out.count("export KUBECONFIG=") == 1
    assert said.out.index("cluster ready") < said.out.index("export KUBECONFIG=")
    assert said.err == f"moor: {farewell.format(layout.root)}\n"


def test_a_cluster_that_is_stopped_otherwise_prints_no_farewell(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save(layout.settings, SETTINGS)
    assert _run(layout, monkeypatch, signal.SIGTERM) == 0
    assert capfd.readouterr().err == ""


def test_a_cluster_without_settings_is_not_supervised(layout: Layout) -> None:
    with pytest.raises(SettingsError, match="`moor up` makes it"):
        supervise.main([str(layout.root), ""])
