from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from moorage.node.garbage.storage import PodFile, engine_files, file_use
from moorage.wire.cri import pb

HOSTNAME = {
    "destination": "/etc/hostname",
    "source": "/run/s/hostname",
    "type": "bind",
    "options": ["rw"],
}


def reply(*mounts: Any, requested: str = "/data", **info: str) -> pb.ContainerStatusResponse:
    answer = pb.ContainerStatusResponse(
        info=info or {"info": json.dumps({"runtimeSpec": {"mounts": mounts}})}
    )
    answer.status.mounts.add(container_path=requested)
    return answer


@pytest.mark.parametrize(
    ("answer", "files"),
    [
        (reply(HOSTNAME), [PodFile("/etc/hostname", Path("/run/s/hostname"))]),
        (reply(HOSTNAME, requested="//etc/hostname"), []),
        (reply(HOSTNAME | {"options": ["rbind", "ro"]}), []),
        (reply(HOSTNAME | {"type": "tmpfs"}), []),
        (reply(HOSTNAME | {"type": "", "options": ["rbind"]}), 1),
        (reply({"destination": "/proc", "type": "proc"}), []),
        (reply(info="no JSON"), []),
        (reply(info="{}"), []),
        (reply(info='{"runtimeSpec": null}'), []),
        (reply(info='{"runtimeSpec": {"mounts": null}}'), []),
        (reply(info='{"runtimeSpec": {"mounts": 5}}'), []),
        (reply(HOSTNAME | {"options": 5}), []),
        (reply(info="[" * 100_000), []),
        (reply(other="{}"), []),
    ],
    ids=[
        "a file of the engine's",
        "one that was asked for",
        "read-only",
        "memory",
        "bound by its options",
        "no path of the host",
        "no JSON",
        "no configuration",
        "null",
        "no mounts",
        "a number of mounts",
        "options that are no list",
        "endless lists",
        "another engine",
    ],
)
def test_files_of_the_engine_are_found_in_its_verbose_status(answer: Any, files: Any) -> None:
    found = engine_files(answer)
    assert len(found) == files if isinstance(files, int) else list(found) == files


def test_only_regular_files_are_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 8192)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    assert file_use(tmp_path / "file").size_bytes >= 8192
    for name in ("link", "pipe", ".", "gone", "file/below"):
        assert file_use(tmp_path / name).size_bytes == 0
