from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from moorage.cluster.daemon import Service, until_stopped


@pytest.mark.parametrize("is_abstract", [False, True])
def test_service_manager_is_notified_and_its_variables_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    spoken = f"@moorage-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(spoken.replace("@", "\0", 1) if is_abstract else spoken)
        notices.settimeout(5)
        for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"):
            monkeypatch.setenv(name, spoken)
        service = Service.taken_from_environment()
        assert not {"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"} & os.environ.keys()
        service.ready()
        service.stopping()
        assert [notices.recv(100), notices.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_without_a_service_manager_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    Service.taken_from_environment().ready()
    assert not caplog.records


def test_one_that_is_gone_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Service(str(tmp_path / "gone")).ready()
    assert [record.getMessage() for record in caplog.records] == [
        "service manager cannot be notified"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_work_which_cleans_up(number: signal.Signals) -> None:
    steps = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.sleep(10)
        finally:
            steps.append("cleaned up")

    asyncio.run(until_stopped(work()))
    assert steps == ["cleaned up"]


def test_work_that_fails_says_so() -> None:
    async def work() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        asyncio.run(until_stopped(work()))
