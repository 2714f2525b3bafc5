"""An engine is checked at once, and what is wrong with it is said with what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from moorage.cri import UnusableEngineError, pb, probe, probing
from tests.fake_crio import Behaviour, FakeCrio, serving


def sleeping(_reader: Any, _writer: Any) -> None:
    """Takes a connection and answers nothing."""


def no_socket(directory: Path) -> None:
    del directory


def file(directory: Path) -> None:
    (directory / "crio.sock").touch()


def left_behind(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "crio.sock"))


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (no_socket, "there is no .*/crio.sock: start the engine, or give its socket's path"),
        (file, "is not a socket"),
        (left_behind, "nothing listens on .*, which an engine that ended left"),
    ],
)
async def test_sockets_that_are_none(
    tmp_path: Path, prepare: Callable[[Path], None], why: str
) -> None:
    prepare(tmp_path)
    endpoint = f"unix://{tmp_path}/crio.sock"
    with pytest.raises(UnusableEngineError, match=f"the engine at {endpoint} .*{why}"):
        await probe(endpoint)


async def test_a_socket_below_a_file_says_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnusableEngineError, match="Not a directory"):
        await probe(f"unix://{tmp_path}/file/crio.sock")


def test_a_socket_that_may_not_be_opened(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    place = Path(shutil.copytree(tmp_path, f"/tmp/moorage-probe-{os.getpid()}"))
    try:
        place.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place / "crio.sock"))
            server.listen()
            (place / "crio.sock").chmod(0o600)
            script = (
                "import os; from moorage.cri.probing import _check_socket; "
                "os.setgroups([]); os.setuid(65534); "
                f"_check_socket('unix://{place}/crio.sock')"
            )
            done = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=False
            )
        assert "may not be opened by this user" in done.stderr
    finally:
        shutil.rmtree(place)


async def test_a_server_of_something_else(tmp_path: Path) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    path = tmp_path / "crio.sock"
    async with await asyncio.start_unix_server(http, path):
        with pytest.raises(UnusableEngineError, match=r"is not a CRI server \("):
            await probe(f"unix://{path}")


async def test_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_TIMEOUT_S", 0.3)
    path = tmp_path / "crio.sock"
    async with await asyncio.start_unix_server(sleeping, path):
        with pytest.raises(
            UnusableEngineError, match=r"does not answer within|is not a CRI server"
        ):
            await probe(f"unix://{path}")


class FormerVersion(grpc.GenericRpcHandler):
    """Answers Version of CRI v1alpha2, and no other call."""

    def service(self, details: Any) -> Any:
        if details.method != "/runtime.v1alpha2.RuntimeService/Version":
            return None

        async def version(_request: bytes, _context: Any) -> bytes:
            return b""

        return grpc.unary_unary_rpc_method_handler(version)


@pytest.mark.parametrize(
    ("handlers", "why"),
    [
        ((FormerVersion(),), "it speaks CRI v1alpha2 only: use containerd 1.6 or later"),
        ((), "it speaks gRPC but not CRI v1 .*disabled_plugins"),
    ],
)
async def test_engines_without_cri_v1(
    tmp_path: Path, handlers: tuple[grpc.GenericRpcHandler, ...], why: str
) -> None:
    server = aio.server(handlers=handlers)
    endpoint = f"unix://{tmp_path}/crio.sock"
    server.add_insecure_port(endpoint)
    await server.start()
    try:
        with pytest.raises(UnusableEngineError, match=why):
            await probe(endpoint)
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        (Behaviour(driver=pb.SYSTEMD), "cri-o uses the cgroup driver 'systemd', .*cgroup_manager"),
        (Behaviour(is_ready=False), "not ready: Why: not yet"),
        (Behaviour(lists_conditions=False), "lacks the condition RuntimeReady"),
        (Behaviour(handlers=[]), "does not tell which runtime handlers"),
        (Behaviour(name=""), "Version reply lacks a field"),
    ],
)
async def test_engines_that_do_not_fit(tmp_path: Path, behaviour: Behaviour, why: str) -> None:
    async with serving(FakeCrio(behaviour), tmp_path) as endpoint:
        with pytest.raises(UnusableEngineError, match=why):
            await probe(endpoint)


async def test_an_engine_that_can_be_used(tmp_path: Path) -> None:
    async with serving(FakeCrio(Behaviour(driver=None)), tmp_path) as endpoint:
        found = await probe(endpoint)
    assert (found.name, found.version, found.complaint) == ("cri-o", "1.37.0", "")
    assert {each.name for each in found.handlers} == {"", "crun", "runc", "runsc"}


async def test_a_network_that_is_missing_is_said_and_no_obstacle(tmp_path: Path) -> None:
    async with serving(FakeCrio(Behaviour(has_network=False)), tmp_path) as endpoint:
        found = await probe(endpoint)
    assert "its network is not ready (NoCNI: no file)" in found.complaint
