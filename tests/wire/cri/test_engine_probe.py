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

from moorage.wire.cri import CriClient, CriError, UnusableEngineError, engine_probe, pb, probe
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
        (left_behind, "nothing listens on .*, left by an engine that has exited"),
    ],
)
async def test_invalid_socket_is_an_error(
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
                "import os; from moorage.wire.cri.engine_probe import _check_socket; "
                "os.setgroups([]); os.setuid(65534); "
                f"_check_socket('unix://{place}/crio.sock')"
            )
            done = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=False
            )
        assert "cannot be opened by this user" in done.stderr
    finally:
        shutil.rmtree(place)


async def test_server_of_another_protocol_is_an_error(tmp_path: Path) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    path = tmp_path / "crio.sock"
    async with await asyncio.start_unix_server(http, path):
        with pytest.raises(UnusableEngineError, match=r"is not a CRI server \("):
            await probe(f"unix://{path}")


async def test_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_probe, "_TIMEOUT_S", 0.3)
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
        (Behaviour(handlers=[]), "does not report its runtime handlers"),
        (Behaviour(name=""), "Version reply lacks a field"),
    ],
)
async def test_engines_that_do_not_fit(tmp_path: Path, behaviour: Behaviour, why: str) -> None:
    async with serving(FakeCrio(behaviour), tmp_path) as endpoint:
        with pytest.raises(UnusableEngineError, match=why):
            await probe(endpoint)


async def test_an_engine_that_can_be_used(tmp_path: Path) -> None:
    async with serving(FakeCrio(Behaviour(driver=None)), tmp_path) as endpoint:
        answer = await probe(endpoint)
    assert (answer.name, answer.version, answer.complaint) == ("cri-o", "1.37.0", "")
    assert {handler.name for handler in answer.handlers} == {"", "crun", "runc", "runsc"}


async def test_missing_network_is_reported_and_does_not_prevent_use(tmp_path: Path) -> None:
    async with serving(FakeCrio(Behaviour(has_network=False)), tmp_path) as endpoint:
        answer = await probe(endpoint)
    assert "its network is not ready (NoCNI: no file)" in answer.complaint


@pytest.mark.parametrize(
    ("driver", "name"), [(pb.SYSTEMD, "'systemd'"), (7, "'7'"), (pb.CGROUPFS, "")]
)
async def test_each_cgroup_driver_has_its_name(
    tmp_path: Path, driver: pb.CgroupDriver.ValueType, name: str
) -> None:
    async with (
        serving(FakeCrio(Behaviour(driver=driver)), tmp_path) as endpoint,
        CriClient(endpoint) as cri,
    ):
        if name:
            with pytest.raises(UnusableEngineError, match=f"x uses the cgroup driver {name}"):
                await engine_probe._check_driver(cri, "x")
        else:
            await engine_probe._check_driver(cri, "x")


class OneCall:
    """A client whose calls all end in one way; the request is in `asked`."""

    endpoint = "unix:///x.sock"

    def __init__(self, outcome: object) -> None:
        self.outcome = outcome
        self.asked: Any = None
        self.timeout_s = 0.0
        self.runtime = self

    def __getattr__(self, name: str) -> str:
        return name

    async def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        self.asked, self.timeout_s = (method, request), timeout_s
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def error(code: grpc.StatusCode) -> CriError:
    return CriError("m", code, "why")


@pytest.mark.parametrize("lacking", ["runtime_name", "runtime_version", "runtime_api_version"])
async def test_a_version_lacks_no_field(lacking: str) -> None:
    whole = {"runtime_name": "n", "runtime_version": "1", "runtime_api_version": "v1"}
    cri: Any = OneCall(pb.VersionResponse(**whole))
    assert await engine_probe._version(cri) is cri.outcome
    assert cri.asked == ("Version", pb.VersionRequest(version="0.1.0"))
    cri = OneCall(pb.VersionResponse(**(whole | {lacking: ""})))
    with pytest.raises(UnusableEngineError, match="lacks a field"):
        await engine_probe._version(cri)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "accepts connections but does not answer within 5 s"),
        (grpc.StatusCode.UNAVAILABLE, r"not a CRI server \(why\)"),
        # The former version is asked for at a socket that is not there.
        (grpc.StatusCode.UNIMPLEMENTED, "it speaks CRI v1alpha2 only"),
    ],
)
async def test_no_version_is_explained(code: grpc.StatusCode, why: str) -> None:
    cri: Any = OneCall(error(code))
    with pytest.raises(UnusableEngineError, match=why):
        await engine_probe._version(cri)


async def test_unreported_driver_is_the_default() -> None:
    for outcome in (error(grpc.StatusCode.UNIMPLEMENTED), pb.RuntimeConfigResponse()):
        cri: Any = OneCall(outcome)
        await engine_probe._check_driver(cri, "x")
    cri = OneCall(error(grpc.StatusCode.UNAVAILABLE))
    with pytest.raises(CriError):
        await engine_probe._check_driver(cri, "x")


@pytest.mark.parametrize("lacking", ["RuntimeReady", "NetworkReady"])
async def test_a_status_lacks_no_condition(lacking: str) -> None:
    conditions = [
        pb.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")
    ]
    cri: Any = OneCall(pb.StatusResponse(status=pb.RuntimeStatus(conditions=conditions)))
    assert await engine_probe._condition_complaint(cri) == ""
    left = [condition for condition in conditions if condition.type != lacking]
    cri = OneCall(pb.StatusResponse(status=pb.RuntimeStatus(conditions=left)))
    with pytest.raises(UnusableEngineError, match=f"lacks the condition {lacking}"):
        await engine_probe._condition_complaint(cri)


def test_socket_with_a_full_backlog_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_probe, "_TIMEOUT_S", 0.05)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(path))
        server.listen(0)
        first.connect(str(path))
        with pytest.raises(UnusableEngineError, match=r"timed out|unavailable"):
            engine_probe._check_socket(f"unix://{path}")
