"""Probe handlers: exec, HTTP, TCP connection, gRPC health.

Each returns one result with the kubelet's message. Source: core/v1 ProbeHandler, KEP-2727 (gRPC),
grpc.health.v1.
"""

from __future__ import annotations

import asyncio
import re
import string
from dataclasses import dataclass
from enum import Enum
from typing import Self
from urllib.parse import quote, urlsplit

import aiohttp
import grpc
from grpc import aio
from yarl import URL

from moorage.api.containers import GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from moorage.api.durations import format_duration
from moorage.api.release import MAJOR, MINOR
from moorage.node.config.environment import expand_all, static_environment
from moorage.node.pod_facts.labels import AnyContainer
from moorage.node.runtime.engine import Engine
from moorage.wire.cri import CriError
from moorage.wire.streaming.dial import Connector

# Port resolution for probes and hooks. Source: core/v1 IntOrString ports.


def resolve_port(port: int | str, container: AnyContainer) -> int:
    """Return the port number. Raises ValueError for an undeclared name or an invalid number."""
    number = _number(port)
    if number is None:
        for declared in container.ports:
            if declared.name == port:
                number = declared.container_port
                break
        else:
            raise ValueError(f"couldn't find port: {port!r} on container {container.name}")
    if not 0 < number < 65536:
        raise ValueError(f"invalid port number: {number}")
    return number


def _number(port: int | str) -> int | None:
    if isinstance(port, int):
        return port
    return int(port) if port.isdigit() else None


# HTTP requests to containers, for probes and hooks.
#
# Certificates are not verified, as no CA issues them for pod addresses; redirects are followed on
# the same host only. Source: core/v1 HTTPGetAction, kubelet `probe/http`.

_BODY_LIMIT = 10 * 1024
_MAX_REDIRECTS = 10
_PATH_SAFE = "/!$&'()*+,;=:@[]"
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class HttpFailure(Exception):  # noqa: N818 - an answer of a probe, not a fault of this program
    """No response was received."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Response to a probe or hook; the body is cut at 10 KiB."""

    status: int
    body: str

    @property
    def is_redirect(self) -> bool:
        return 300 <= self.status < 400


class HttpClient:
    """HTTP client for containers, with a connection per request as an external client has."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=Connector(ssl=False, force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(
        self,
        action: HTTPGetAction,
        container: AnyContainer,
        address: str,
        *,
        purpose: str,
        timeout_s: float | None,
    ) -> HttpAnswer:
        """Send a GET request and return the response. `purpose` is part of the User-Agent.

        Raises HttpFailure when there is no response, ValueError for an invalid port.
        """
        assert self._session is not None
        url = url_of(action, container, address)
        headers = headers_of(action, purpose)
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            for _ in range(_MAX_REDIRECTS):
                async with self._session.get(
                    url, headers=headers, timeout=timeout, allow_redirects=False
                ) as response:
                    body = await response.content.read(_BODY_LIMIT)
                    answer = HttpAnswer(response.status, body.decode(errors="replace"))
                    target = response.headers.get("Location", "")
                if not answer.is_redirect or not target:
                    return answer
                following = url.join(URL(target))
                if following.host != url.host:
                    return answer
                url = following
        except TimeoutError as error:
            raise HttpFailure(
                f'Get "{url}": context deadline exceeded '
                "(Client.Timeout exceeded while awaiting headers)"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise HttpFailure(f'Get "{url}": {_cause(error, url)}') from error
        raise HttpFailure(f'Get "{url}": stopped after {_MAX_REDIRECTS} redirects')


def url_of(action: HTTPGetAction, container: AnyContainer, address: str) -> URL:
    """Return the request's URL. Raises ValueError for an invalid port."""
    path, query = _target(action.path or "/")
    scheme, port = (action.scheme or "HTTP").lower(), resolve_port(action.port, container)
    server = URL.build(scheme=scheme, host=action.host or address, port=port)
    return URL.build(
        scheme=scheme,
        authority=server.raw_authority,
        path=path if path.startswith("/") else f"/{path}",
        query_string=query,
        encoded=True,
    )


def _target(path: str) -> tuple[str, str]:
    """Return path and query in their encoded form; existing escapes are kept.

    A percent sign in the path that begins no escape makes all of it a path, as the kubelet does
    with what Go's `url.Parse` refuses. Source: kubelet `probe/http` formatURL.
    """
    parts = urlsplit(path)
    if _BAD_ESCAPE.search(parts.path):
        return quote(path, safe=_PATH_SAFE), ""
    return quote(parts.path, safe=_PATH_SAFE + "%"), quote(parts.query, safe=string.punctuation)


def headers_of(action: HTTPGetAction, purpose: str) -> list[tuple[str, str]]:
    """Return the request's headers; an Accept header with an empty value is omitted."""
    headers = [(header.name, header.value) for header in action.http_headers]
    given = {name.lower(): value for name, value in headers}
    if "user-agent" not in given:
        headers.append(("User-Agent", f"kube-{purpose}/{MAJOR}.{MINOR}"))
    if "accept" not in given:
        headers.append(("Accept", "*/*"))
    return [(name, value) for name, value in headers if name.lower() != "accept" or value]


def _cause(error: Exception, url: URL) -> str:
    """Return the error's message, for a refused connection as a Go client prints it."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, ConnectionRefusedError):
            return f"dial tcp {url.host}:{url.port}: connect: connection refused"
        inner = getattr(inner, "os_error", None) or inner.__cause__
    return str(error) or type(error).__name__


_OUTPUT_LIMIT = 10 * 1024
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = 1
_HEALTH_NAMES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class Outcome(Enum):
    """Outcome of a probe attempt."""

    SUCCESS = "success"
    WARNING = "warning"
    FAILURE = "failure"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one attempt. ERROR: the probe itself could not be run."""

    outcome: Outcome
    output: str = ""


SUCCESS = CheckResult(Outcome.SUCCESS)


class Checks:
    """Runs single probe attempts."""

    def __init__(self, engine: Engine, http: HttpClient) -> None:
        self._engine = engine
        self._http = http

    async def run(
        self, probe: Probe, container: AnyContainer, container_id: str, address: str
    ) -> CheckResult:
        """Run one attempt against a running container of a pod with this address."""
        timeout_s = max(probe.timeout_seconds, 1)
        try:
            if probe.exec is not None:
                return await self._exec(probe.exec.command, container, container_id, timeout_s)
            if probe.http_get is not None:
                return await self._http_get(probe.http_get, container, address, timeout_s)
            if probe.tcp_socket is not None:
                return await check_tcp(probe.tcp_socket, container, address, timeout_s)
            if probe.grpc is not None:
                return await _grpc(probe.grpc, address, timeout_s)
        except ValueError as error:
            return CheckResult(Outcome.ERROR, str(error))
        return CheckResult(Outcome.ERROR, "missing probe handler")

    async def _exec(
        self, command: tuple[str, ...], container: AnyContainer, container_id: str, timeout_s: int
    ) -> CheckResult:
        variables = static_environment(container)
        expanded = expand_all(command, variables)
        try:
            result = await self._engine.exec_sync(container_id, expanded, timeout_s)
        except CriError as error:
            if error.is_timeout:
                return CheckResult(Outcome.FAILURE, _timed_out(expanded, timeout_s))
            return CheckResult(Outcome.ERROR, str(error))
        output = (result.stdout + result.stderr)[:_OUTPUT_LIMIT].decode(errors="replace")
        if result.exit_code == 0:
            return CheckResult(Outcome.SUCCESS, output)
        if result.exit_code < 0:
            # Some engines report a timeout as a negative exit code instead of a status code.
            return CheckResult(Outcome.FAILURE, _timed_out(expanded, timeout_s))
        return CheckResult(Outcome.FAILURE, output)

    async def _http_get(
        self, action: HTTPGetAction, container: AnyContainer, address: str, timeout_s: int
    ) -> CheckResult:
        try:
            answer = await self._http.get(
                action, container, address, purpose="probe", timeout_s=timeout_s
            )
        except HttpFailure as error:
            return CheckResult(Outcome.FAILURE, str(error))
        if answer.is_redirect:
            return CheckResult(
                Outcome.WARNING, f"Probe terminated redirects, Response body: {answer.body}"
            )
        if 200 <= answer.status < 300:
            return CheckResult(Outcome.SUCCESS, answer.body)
        return CheckResult(Outcome.FAILURE, f"HTTP probe failed with statuscode: {answer.status}")


def _timed_out(command: list[str], timeout_s: int) -> str:
    return f'command timed out: "{" ".join(command)}" timed out after {timeout_s}s'


async def check_tcp(
    action: TCPSocketAction, container: AnyContainer, address: str, timeout_s: int
) -> CheckResult:
    host, port = action.host or address, resolve_port(action.port, container)
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return CheckResult(Outcome.FAILURE, f"dial tcp {host}:{port}: i/o timeout")
    except ConnectionRefusedError:
        why = f"dial tcp {host}:{port}: connect: connection refused"
        return CheckResult(Outcome.FAILURE, why)
    except OSError as error:
        why = f"dial tcp {host}:{port}: {error.strerror or error}"
        return CheckResult(Outcome.FAILURE, why)
    writer.close()
    return SUCCESS


async def _grpc(action: GRPCAction, address: str, timeout_s: int) -> CheckResult:
    host = f"[{address}]" if ":" in address else address
    target = f"{host}:{action.port}"
    spoken = format_duration(timeout_s)
    async with aio.insecure_channel(
        target, options=[("grpc.primary_user_agent", f"kube-probe/{MAJOR}.{MINOR}")]
    ) as channel:
        check = channel.unary_unary(
            _HEALTH, request_serializer=health_request, response_deserializer=health_status
        )
        try:
            async with asyncio.timeout(timeout_s):
                await channel.channel_ready()
        except TimeoutError:
            return CheckResult(
                Outcome.FAILURE,
                f'timeout: failed to connect service "{target}" within {spoken}: '
                "context deadline exceeded",
            )
        try:
            status = await check(action.service or "", timeout=timeout_s)
        except aio.AioRpcError as error:
            return CheckResult(Outcome.FAILURE, grpc_failure(error, spoken))
    if status == _SERVING:
        return CheckResult(Outcome.SUCCESS, "service healthy")
    name = _HEALTH_NAMES.get(status, str(status))
    return CheckResult(Outcome.FAILURE, f'service unhealthy (responded with "{name}")')


def grpc_failure(error: aio.AioRpcError, spoken: str) -> str:
    match error.code():
        case grpc.StatusCode.UNIMPLEMENTED:
            return (
                "error: this server does not implement the grpc health protocol "
                f"(grpc.health.v1.Health): {error.details()}"
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"timeout: health rpc did not complete within {spoken}"
    return f"error: health rpc probe failed: {error.details()}"


def health_request(service: str) -> bytes:
    """Encode a HealthCheckRequest: field 1, a string."""
    name = service.encode()
    return b"\x0a" + _varint(len(name)) + name if name else b""


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def health_status(reply: bytes) -> int:
    """Decode a HealthCheckResponse: field 1, an enum; 0 when it is absent."""
    return reply[1] if len(reply) >= 2 and reply[0] == 0x08 else 0
