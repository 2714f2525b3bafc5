from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from moorage.node.pod_facts.labels import MESSAGE_PATH, MESSAGE_POLICY
from moorage.node.runtime.engine import termination_message
from moorage.wire.cri import pb


def ended(file: Path | None = None, log: Path | None = None, **fields: Any) -> pb.ContainerStatus:
    policy = fields.pop("policy", "File")
    usual: dict[str, Any] = {"state": pb.CONTAINER_EXITED, "exit_code": 1}
    return pb.ContainerStatus(
        annotations={MESSAGE_PATH: "/dev/termination-log", MESSAGE_POLICY: policy},
        mounts=[pb.Mount(container_path="/dev/termination-log", host_path=str(file))]
        if file is not None
        else [],
        log_path=str(log or ""),
        **(usual | fields),
    )


def leave(file: Path, message: str) -> None:
    file.write_text(message)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "message"
    path.write_text("disk is full")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_text(
        "".join(f"2026-01-01T00:00:00Z stderr F line {index}\n" for index in range(100))
    )
    return path


async def test_the_file_a_container_left(file: Path) -> None:
    assert await termination_message(ended(file)) == "disk is full"


async def test_message_of_the_engine_comes_first(file: Path) -> None:
    assert await termination_message(ended(file, message="killed")) == "killed: disk is full"


async def test_only_of_what_has_ended(file: Path) -> None:
    assert await termination_message(ended(file, state=pb.CONTAINER_RUNNING)) == ""


async def test_only_the_end_of_a_long_file(file: Path) -> None:
    leave(file, "x" * 5000 + "end")
    message = await termination_message(ended(file))
    assert len(message) == 4096
    assert message.endswith("xend")


@pytest.mark.parametrize(
    ("policy", "code", "content", "wanted"),
    [
        ("FallbackToLogsOnError", 1, "", "line 20\n"),
        ("FallbackToLogsOnError", 0, "", ""),
        ("FallbackToLogsOnError", 1, "own", "own"),
        ("File", 1, "", ""),
    ],
)
async def test_log_is_the_message_after_a_failure(
    file: Path, log: Path, policy: str, code: int, content: str, wanted: str
) -> None:
    leave(file, content)
    message = await termination_message(ended(file, log, policy=policy, exit_code=code))
    assert message.startswith(wanted)
    assert bool(message) == bool(wanted)


async def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert await termination_message(ended(tmp_path / "gone")) == ""
    assert await termination_message(ended()) == ""


async def test_a_link_is_not_followed(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    message = await termination_message(ended(link))
    assert message == f"Error on reading termination log {link}: Too many levels of symbolic links"


async def test_directory_at_the_message_path_is_reported_in_the_message(tmp_path: Path) -> None:
    message = await termination_message(ended(tmp_path))
    assert message == f"Error on reading termination log {tmp_path}: Is a directory"


async def test_pipe_mounted_there_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert (await termination_message(ended(pipe))).startswith("Error on reading")


@pytest.mark.skipif(os.geteuid() != 0, reason="devices need root")
async def test_a_device_mounted_there_is_not_opened(tmp_path: Path) -> None:
    """Opening a watchdog would start it."""
    zero = tmp_path / "zero"
    os.mknod(zero, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    found = await termination_message(ended(zero))
    assert found == f"Error on reading termination log {zero}: Invalid argument"
