"""Readiness reported to the process that started this one."""

from __future__ import annotations

import os

import pytest

from moorage.cluster.supervision.readiness import notify_ready
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE, READY_MESSAGE


def test_ready_notification_is_sent_once() -> None:
    environment: dict[str, str] = {}
    notify_ready(environment)
    read_end, write_end = os.pipe()
    environment[NOTIFY_VARIABLE] = str(write_end)
    notify_ready(environment)
    assert environment == {}
    notify_ready(environment)
    assert os.read(read_end, 100) == READY_MESSAGE
    assert os.read(read_end, 100) == b""
    os.close(read_end)


def test_a_starter_that_has_gone_is_not_missed() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    notify_ready({NOTIFY_VARIABLE: str(write_end)})
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(write_end)
