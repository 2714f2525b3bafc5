"""Quick reads: the same answers as the handler's, and everything that changes takes effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.server.quick_reads import QuickReads
from moorage.wire.serving import HttpConnection
from tests.apiserver.running_server import Running, serving
from tests.apiserver.server.test_metrics_page import metrics, total

MAPS = "/api/v1/namespaces/default/configmaps"
ONE = f"{MAPS}/one"
_VARYING = frozenset({"Audit-Id", "Date"})


class Spied:
    """Answers of the quick reads, in order: whether each request got one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.were_quick: list[bool] = []
        answer = QuickReads.answer

        def noted(reads: QuickReads, connection: HttpConnection, data: bytes) -> bytes | None:
            answered = answer(reads, connection, data)
            self.were_quick.append(answered is not None)
            return answered

        monkeypatch.setattr(QuickReads, "answer", noted)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> Spied:
    return Spied(monkeypatch)


@pytest.fixture
async def server(tmp_path: Path, spied: Spied) -> AsyncIterator[Running]:
    # It must be in place before the server takes the function.
    del spied
    async with serving(tmp_path) as running:
        body = {"metadata": {"name": "one"}, "data": {"a": "1"}}
        assert (await running.ask("POST", MAPS, body)).status == 201
        yield running


async def _read(server: Running, path: str = ONE, **options: Any) -> Any:
    """Read until an answer is quick, which the second is unless the connection is busy still."""
    return await server.ask("GET", path, **options)


@pytest.mark.parametrize("accept", ["", "application/json", "application/vnd.kubernetes.protobuf"])
async def test_an_answer_is_the_handlers(server: Running, spied: Spied, accept: str) -> None:
    headers = {"Accept": accept} if accept else {}
    answers = [await _read(server, **headers) for _ in range(4)]
    assert spied.were_quick[-2:] == [True, True]
    first, last = answers[0], answers[-1]
    assert first.body == last.body
    assert list(first.headers) == list(last.headers)
    for name in first.headers:
        if name not in _VARYING:
            assert first.headers[name] == last.headers[name]
    assert len({answer.headers["Audit-Id"] for answer in answers}) == 4


async def test_requests_between_quick_ones_are_answered_on_the_same_connection(
    server: Running, spied: Spied
) -> None:
    for number in range(3):
        await _read(server)
        assert (await _read(server)).json["data"] == {"a": str(number or 1)}
        body = {"metadata": {"name": "one"}, "data": {"a": str(number + 1)}}
        assert (await server.ask("PUT", ONE, body)).status == 200
        assert (await _read(server)).json["data"] == {"a": str(number + 1)}
    assert any(spied.were_quick)


async def test_a_deleted_object_is_not_found(server: Running, spied: Spied) -> None:
    for _ in range(3):
        await _read(server)
    await server.ask("DELETE", ONE)
    assert (await _read(server)).json["reason"] == "NotFound"
    assert spied.were_quick[-1] is False


async def test_a_user_whose_rule_is_gone_is_refused(server: Running, spied: Spied) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    await server.ask("POST", f"{roles}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }
    await server.ask("POST", f"{roles}/rolebindings", binding)
    for _ in range(4):
        assert (await _read(server, token="alice-token")).status == 200
    assert spied.were_quick[-1] is True
    await server.ask("DELETE", f"{roles}/rolebindings/r")
    assert (await _read(server, token="alice-token")).status == 403


async def test_another_users_request_for_the_same_object_is_authorized_by_itself(
    server: Running,
) -> None:
    for _ in range(3):
        assert (await _read(server)).status == 200
        assert (await _read(server, token="alice-token")).status == 403
        assert (await _read(server, token="wrong")).status == 401


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (f"{ONE}?pretty=1", {}),
        (f"{ONE}?resourceVersion=0", {}),
        (MAPS, {}),
        (ONE, {"User-Agent": "curl/8"}),
        (ONE, {"Impersonate-User": "alice", "Impersonate-Group": "system:masters"}),
        (ONE, {"Accept": "application/yaml"}),
        (ONE, {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}),
        (ONE, {"Connection": "close"}),
        ("/version", {}),
        ("/api/v1/namespaces/default/status", {}),
    ],
)
async def test_other_requests_are_left_to_the_handler(
    server: Running, spied: Spied, path: str, headers: dict[str, str]
) -> None:
    for _ in range(3):
        assert (await _read(server, path, **headers)).status == 200
    assert not any(spied.were_quick)


async def test_quick_requests_are_counted(server: Running, spied: Spied) -> None:
    labels = {"verb": "GET", "resource": "configmaps", "scope": "resource", "code": "200"}
    before = total(await metrics(server), "apiserver_request_total", **labels)
    for _ in range(5):
        await _read(server)
    values = await metrics(server)
    assert spied.were_quick.count(True) >= 3
    assert total(values, "apiserver_request_total", **labels) == before + 5
    del labels["code"]
    family = "apiserver_request_duration_seconds_count"
    assert total(values, family, **labels) == before + 5
    dispatched = "apiserver_flowcontrol_dispatched_requests_total"
    assert total(values, dispatched, flow_schema="exempt") >= 5


async def test_pipelined_reads_are_answered_in_their_order(server: Running) -> None:
    """As raw bytes: a client that sends the next requests before it has read the answers."""
    host = server.url.removeprefix("https://")
    name, port = host.split(":")
    head = f"Host: {host}\r\nAuthorization: Bearer admin-token\r\n\r\n"
    one = f"GET {ONE} HTTP/1.1\r\n{head}".encode()
    none = f"GET {MAPS}/none HTTP/1.1\r\n{head}".encode()
    reader, writer = await asyncio.open_connection(name, int(port), ssl=server.tls())
    async with asyncio.timeout(20):
        for piece, statuses in (
            (one, [200]), (one, [200]), (one, [200]), (one + none + one, [200, 404, 200]),
            (one, [200]), (none[:30], []), (none[30:] + one, [404, 200]),
        ):  # fmt: skip
            writer.write(piece)
            for status in statuses:
                answered = (await reader.readuntil(b"\r\n\r\n")).decode()
                assert answered.startswith(f"HTTP/1.1 {status} ")
                length = answered.lower().partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length))
    writer.close()
