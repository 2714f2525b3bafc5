"""An API server of ours in a process and a directory of its own, for benchmarks to load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from moorage.cluster.creation import open_cluster
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Choices
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE, READY_MESSAGE
from moorage.wire.client.config import load_kubeconfig
from moorage.wire.client.resources import SERVICE_ACCOUNTS
from moorage.wire.client.rest import Client

_READY_S = 30.0
_ACCOUNT = "bench"
_BINDING = {
    "metadata": {"name": _ACCOUNT},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    },
    "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": "default"}],
}


@contextlib.contextmanager
def process(directory: Path, ready_s: float = _READY_S) -> Iterator[subprocess.Popen[bytes]]:
    """The API server's process, entered when it says that it is ready, after `ready_s` at most."""
    layout = Layout(directory)
    port = None if layout.settings.exists() else free_port()
    open_cluster(layout, Choices(has_node=False, api_port=port))
    read_end, write_end = os.pipe()
    server = subprocess.Popen(
        [sys.executable, "-m", "moorage.cluster.parts", "apiserver", str(directory)],
        env={**os.environ, NOTIFY_VARIABLE: str(write_end)},
        pass_fds=(write_end,),
        stderr=None if os.environ.get("BENCH_LOG") else subprocess.DEVNULL,
    )
    os.close(write_end)
    try:
        _wait_ready(read_end, ready_s)
        yield server
    finally:
        os.close(read_end)
        server.terminate()
        server.wait()


def free_port() -> int:
    """A port that no cluster on this machine has: the default one may be taken."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_ready(notices: int, ready_s: float) -> None:
    """Wait for the message among the beats. Raises SystemExit."""
    output = b""
    deadline = time.monotonic() + ready_s
    while READY_MESSAGE not in output:
        left_s = deadline - time.monotonic()
        is_readable = left_s > 0 and select.select([notices], [], [], left_s)[0]
        piece = os.read(notices, 4096) if is_readable else b""
        if not piece:
            raise SystemExit("the API server is not ready in time")
        output += piece


@contextlib.contextmanager
def running() -> Iterator[tuple[str, str]]:
    """The server's URL and an administrator's token."""
    with tempfile.TemporaryDirectory() as scratch, process(Path(scratch)):
        layout = Layout(Path(scratch))
        yield asyncio.run(administrator(layout))


async def administrator(layout: Layout) -> tuple[str, str]:
    """Create an administrator's account; return the server's URL and the account's token."""
    async with Client(load_kubeconfig(layout.kubeconfig), user_agent="bench") as client:
        for name in (_ACCOUNT, "default"):
            await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, "default")
        await client.request(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            body=msgspec.json.encode(_BINDING),
        )
        answer = await client.request(
            "POST", SERVICE_ACCOUNTS.path("default", _ACCOUNT, "token"), body=b"{}"
        )
        return client.server, str(msgspec.json.decode(answer)["status"]["token"])
