"""`moor engine`: alone on folders of its own, as a service manager or a person starts it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.cluster.engine.sweep import remove_mounts
from moorage.cri import CriClient, pb
from tests.running import MOOR, skip_without_runtimes

pytestmark = pytest.mark.runtime

_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Place:
    """Folders of one engine. They are short, since sockets are in them."""

    root: Path

    @property
    def endpoint(self) -> str:
        return f"unix://{self.root}/e.sock"

    def argv(self, *more: str) -> list[str]:
        folders = {"data-dir": "d", "run-dir": "r", "handlers-dir": "h", "cni-conf": "c"}
        options = [
            word for name, each in folders.items() for word in (f"--{name}", str(self.root / each))
        ]
        return [*MOOR, "engine", "--listen", self.endpoint, *options, *more]

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        """Start it, as a service manager would, and wait until it says that it is ready."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            address = self.root / "notify"
            address.unlink(missing_ok=True)
            notices.bind(str(address))
            notices.settimeout(_DEADLINE_S)
            process = subprocess.Popen(
                self.argv(), stderr=subprocess.PIPE, text=True,
                env=os.environ | {"NOTIFY_SOCKET": str(address)},
            )  # fmt: skip
            try:
                assert notices.recv(100) == b"READY=1"
                yield process
            finally:
                process.kill()
                process.communicate()


@pytest.fixture
def place() -> Iterator[Place]:
    skip_without_runtimes()
    root = Path(tempfile.mkdtemp(prefix="moor-"))
    (root / "c").mkdir()
    try:
        yield Place(root)
    finally:
        remove_mounts(root)
        shutil.rmtree(root)


async def _ask(endpoint: str) -> tuple[str, set[str], dict[str, bool]]:
    async with CriClient(endpoint) as cri:
        version = await cri.call(cri.runtime.Version, pb.VersionRequest())
        status = await cri.call(cri.runtime.Status, pb.StatusRequest())
    handlers = {each.name for each in status.runtime_handlers}
    return version.runtime_name, handlers, {x.type: x.status for x in status.status.conditions}


def test_it_answers_says_so_and_ends_when_told(place: Place) -> None:
    with place.started() as process:
        name, handlers, conditions = asyncio.run(_ask(place.endpoint))
        assert name == "moorage"
        assert {"", "runc"} <= handlers
        # There is no network's configuration in its folder, which is no reason not to run.
        assert conditions == {"RuntimeReady": True, "NetworkReady": False}
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=_DEADLINE_S)
    assert process.returncode == 0, log
    assert "engine ready" in log
    assert "Traceback" not in log
    assert not Path(place.endpoint.removeprefix("unix://")).exists()
    cleared = subprocess.run(
        place.argv("--clear"), capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    assert cleared.returncode == 0, cleared.stderr
    assert {each.name for each in (place.root / "d" / "handlers.d").iterdir()} >= {"runc.toml"}


def test_two_on_the_same_folders_are_one_too_many(place: Place) -> None:
    with place.started() as process:
        second = subprocess.run(
            place.argv(), capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
        assert second.returncode == 1
        assert "another engine runs on" in second.stderr
        assert "Traceback" not in second.stderr
        # The first still answers: its socket was not taken.
        assert asyncio.run(_ask(place.endpoint))[0] == "moorage"
        assert process.poll() is None
