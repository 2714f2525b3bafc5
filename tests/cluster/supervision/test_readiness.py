"""Readiness reported to the process that started this one."""

from __future__ import annotations

import os

import pytest

from moorage.cluster.supervision.readiness import notify_ready
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE, READY_MESSAGE


def test_ready_notification_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTIFY_VARIABLE, raising=False)
    notify_ready()
    read_end, write_end = os.pipe()
    monkeypatch.setenv(NOTIFY_VARIABLE, str(write_end))
    notify_ready()
    notify_ready()
    assert os.read(read_end, 100) == READY_MESSAGE
    assert os.read(read_end, 100) == b""
    os.close(read_end)


def test_a_starter_that_has_gone_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    monkeypatch.setenv(NOTIFY_VARIABLE, str(write_end))
    notify_ready()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(write_end)
