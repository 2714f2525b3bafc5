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

from moorage.wire.cri import UnusableEngineError, pb, probe
from moorage.wire.cri.engine_probe import Probed
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
                "import asyncio, concurrent.futures.thread, os; "
                "from moorage.wire.cri import probe; "
                "os.setgroups([]); os.setuid(65534); "
                f"asyncio.run(probe('unix://{place}/crio.sock'))"
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


async def test_a_server_that_never_answers(tmp_path: Path) -> None:
    path = tmp_path / "crio.sock"
    async with await asyncio.start_unix_server(sleeping, path):
        with pytest.raises(
            UnusableEngineError, match=r"does not answer within|is not a CRI server"
        ):
            await probe(f"unix://{path}", timeout_s=0.3)


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


class AnsweringCrio(FakeCrio):
    """Answers some calls as a test says: with a message, or with a status code."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(Behaviour())
        self.answers = answers
        self.asked: list[Any] = []

    async def _answer(self, name: str, request: Any, context: Any) -> Any:
        self.asked.append(request)
        answer = self.answers.get(name)
        if isinstance(answer, grpc.StatusCode):
            await context.abort(answer, "why")
        return answer or await getattr(super(), name)(request, context)

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer("Version", request, context)

    async def RuntimeConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer("RuntimeConfig", request, context)

    async def Status(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer("Status", request, context)


async def probe_of(crio: FakeCrio, tmp_path: Path) -> Probed:
    async with serving(crio, tmp_path) as endpoint:
        return await probe(endpoint)


@pytest.mark.parametrize(
    ("driver", "name"), [(pb.SYSTEMD, "'systemd'"), (7, "'7'"), (pb.CGROUPFS, "")]
)
async def test_each_cgroup_driver_has_its_name(
    tmp_path: Path, driver: pb.CgroupDriver.ValueType, name: str
) -> None:
    crio = FakeCrio(Behaviour(driver=driver))
    if name:
        with pytest.raises(UnusableEngineError, match=f"cri-o uses the cgroup driver {name}"):
            await probe_of(crio, tmp_path)
    else:
        assert (await probe_of(crio, tmp_path)).name == "cri-o"


@pytest.mark.parametrize("lacking", ["", "runtime_name", "runtime_version", "runtime_api_version"])
async def test_a_version_lacks_no_field(tmp_path: Path, lacking: str) -> None:
    whole = {"runtime_name": "n", "runtime_version": "1", "runtime_api_version": "v1"}
    crio = AnsweringCrio(Version=pb.VersionResponse(**(whole | ({lacking: ""} if lacking else {}))))
    if lacking:
        with pytest.raises(UnusableEngineError, match="lacks a field"):
            await probe_of(crio, tmp_path)
    else:
        assert (await probe_of(crio, tmp_path)).version == "1"
        assert crio.asked[0] == pb.VersionRequest(version="0.1.0")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "accepts connections but does not answer within 5 s"),
        (grpc.StatusCode.UNAVAILABLE, r"not a CRI server \(why\)"),
        (grpc.StatusCode.UNIMPLEMENTED, r"not CRI v1 \(why\)"),
    ],
)
async def test_no_version_is_explained(tmp_path: Path, code: grpc.StatusCode, why: str) -> None:
    with pytest.raises(UnusableEngineError, match=why):
        await probe_of(AnsweringCrio(Version=code), tmp_path)


@pytest.mark.parametrize(
    "answer",
    [grpc.StatusCode.UNIMPLEMENTED, pb.RuntimeConfigResponse(), grpc.StatusCode.UNAVAILABLE],
)
async def test_unreported_driver_is_the_default(tmp_path: Path, answer: object) -> None:
    crio = AnsweringCrio(RuntimeConfig=answer)
    if answer is grpc.StatusCode.UNAVAILABLE:
        with pytest.raises(UnusableEngineError, match="why"):
            await probe_of(crio, tmp_path)
    else:
        assert (await probe_of(crio, tmp_path)).complaint == ""


@pytest.mark.parametrize("lacking", ["RuntimeReady", "NetworkReady"])
async def test_a_status_lacks_no_condition(tmp_path: Path, lacking: str) -> None:
    conditions = [
        pb.RuntimeCondition(type=name, status=True)
        for name in ("RuntimeReady", "NetworkReady")
        if name != lacking
    ]
    status = pb.StatusResponse(status=pb.RuntimeStatus(conditions=conditions))
    with pytest.raises(UnusableEngineError, match=f"lacks the condition {lacking}"):
        await probe_of(AnsweringCrio(Status=status), tmp_path)


async def test_socket_with_a_full_backlog_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(path))
        server.listen(0)
        first.connect(str(path))
        with pytest.raises(UnusableEngineError, match=r"timed out|unavailable"):
            await probe(f"unix://{path}", timeout_s=0.05)
