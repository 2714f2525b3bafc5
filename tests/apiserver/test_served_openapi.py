"""Every operation of the served OpenAPI v3, with drawn requests: a Status at worst, never a fault.

A few seconds with the same requests each time; `MOORAGE_FUZZ_S` says for how long otherwise, with
new ones. See docs/decisions/044-recorded-tables.md.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from moorage.apiserver.registry.kinds import STORED_KINDS
from tests.apiserver.fuzz import Request
from tests.apiserver.openapi_requests import NAMESPACE, PRESENT, Operation, operations, requests
from tests.apiserver.process import Connection, Server, is_fault, plain_request, server_process
from tests.apiserver.registry.rules import BASES

_FOR_S = float(os.environ.get("MOORAGE_FUZZ_S", "0"))
_SEED = int(os.environ.get("MOORAGE_FUZZ_SEED", str(int(time.time()) if _FOR_S else 1)))
_EXAMPLES = 500
_ROUND = 1000
"""Requests of the long form between two looks at memory, with the objects made again."""

SLOWEST_S = 5.0
"""The longest that an answer may take; three of four seconds are the evaluator's deadline."""

MOST_RSS_MIB = 1024

# What the requests themselves configure: webhooks and extension servers that do not answer.
_CONFIGURED = re.compile(
    r"failed calling webhook|conversion webhook for|service unavailable|dial tcp|"
    r"request did not complete within requested timeout"
)
_MADE_S = 10.0
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

pytestmark = pytest.mark.timeout(_FOR_S * 1.2 + 180)


def _definition(plural: str, kind: str, *versions: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.fuzz.example"},
        "spec": {
            "group": "fuzz.example",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": list(versions),
        },
    }


def _version(name: str, spec: dict[str, Any], *, is_stored: bool = True) -> dict[str, Any]:
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return {
        "name": name,
        "served": True,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": [{"name": "S", "type": "string", "jsonPath": ".spec.size"}],
    }


_RULED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "default": 1},
        "size": {"x-kubernetes-int-or-string": True, "default": 5},
        "mode": {"type": "string", "enum": ["on", "off"], "default": "on"},
        "names": {
            "type": "array", "maxItems": 20, "x-kubernetes-list-type": "set",
            "items": {"type": "string", "maxLength": 40, "pattern": "^[a-z0-9./-]*$"},
        },
        "parts": {
            "type": "array", "maxItems": 20, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object", "required": ["name"],
                "properties": {
                    "name": {"type": "string", "maxLength": 20, "default": "x"},
                    "weight": {"type": "number", "maximum": 100, "nullable": True},
                },
                "x-kubernetes-validations": [{"rule": "self.name != 'bad'"}],
            },
        },
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": True,
                     "x-kubernetes-preserve-unknown-fields": True},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.names) || self.names.all(n, n != 'bad')", "message": "no bad names"},
        {"rule": "!has(oldSelf.replicas) || self.replicas >= 0"},
        {"rule": "!has(self.parts) || !self.parts.exists(p, p.name.matches('^worst$'))"},
    ],
}  # fmt: skip
_LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_DEFINED = (
    _definition("ruleds", "Ruled", _version("v1", _RULED)),
    _definition("twins", "Twin", _version("v1", _RULED),
                _version("v2", _LOOSE, is_stored=False)),
)  # fmt: skip


@dataclass
class Seen:
    """What was seen."""

    statuses: Counter[int] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: str = ""
    most_rss_mib: int = 0


class Client:
    """Sends requests one at a time from code that does not wait."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen = Seen()
        self._loop = asyncio.new_event_loop()
        self._connection = Connection(server)

    def close(self) -> None:
        self._connection.close()
        self._loop.close()

    def ask(self, request: Request) -> tuple[int, bytes]:
        return self._loop.run_until_complete(self._connection.ask(request))

    def json(self, method: str, target: str, body: Any = None) -> Any:
        _, answer = self.ask(plain_request(method, target, body))
        return json.loads(answer)

    def check(self, request: Request) -> None:
        """Send a drawn request and check its answer."""
        began = time.monotonic()
        status, body = self.ask(request)
        took_s = time.monotonic() - began
        self.seen.statuses[status] += 1
        if took_s > self.seen.slowest_s:
            self.seen.slowest_s, self.seen.slowest = took_s, f"{request.method} {request.target}"
        if _CONFIGURED.search(body.decode(errors="replace")):
            return
        assert not is_fault(status, body), f"{status} {body[:2000]!r}"
        assert self.server.process.poll() is None
        if status >= 400 and not request.streams:
            # A definition that an earlier request deleted is not served, in upstream's words.
            is_gone = status == 404 and body == b"404 page not found\n"
            assert b"Status" in body or is_gone, f"{status} {body[:500]!r}"

    def prepare(self) -> None:
        """Make an object of every kind, under one name."""
        for definition in _DEFINED:
            names = definition["spec"]["names"]
            place = f"/apis/fuzz.example/v1/namespaces/{NAMESPACE}/{names['plural']}"
            head = {"apiVersion": "fuzz.example/v1", "kind": names["kind"]}
            body = {**head, "metadata": {"name": PRESENT}, "spec": {"parts": [{"name": "a"}]}}
            self._until_made(_DEFINITIONS, definition)
            self._until_made(place, body)
        for kind in STORED_KINDS:
            served = kind.storage
            body = copy.deepcopy(BASES.get(kind.name, {"metadata": {}}))
            body |= {"apiVersion": served.api_version, "kind": kind.name}
            body["metadata"]["name"] = PRESENT
            self.ask(plain_request("POST", _place(kind), body))

    def _until_made(self, target: str, body: dict[str, Any]) -> None:
        """Create an object as soon as its definition is served, or gone."""
        ends = time.monotonic() + _MADE_S
        status, answer = self.ask(plain_request("POST", target, body))
        while status != 201:
            name = body["metadata"]["name"]
            status, found = self.ask(plain_request("GET", f"{target}/{name}"))
            if status == 200 and "deletionTimestamp" not in json.loads(found)["metadata"]:
                return
            assert time.monotonic() < ends, f"{target}: {answer!r}"
            status, answer = self.ask(plain_request("POST", target, body))

    def clean(self) -> None:
        """Delete what was made, so that what is kept on purpose does not count as memory."""
        for kind in STORED_KINDS:
            if kind.plural not in ("namespaces", "clusterroles", "clusterrolebindings"):
                self.ask(plain_request("DELETE", f"{_place(kind)}?gracePeriodSeconds=0"))

    def operations(self) -> list[Operation]:
        """Read the operations of all documents."""
        paths = self.json("GET", "/openapi/v3")["paths"].values()
        documents = [self.json("GET", path["serverRelativeURL"]) for path in paths]
        return [one for document in documents for one in operations(document)]


def _place(kind: Any) -> str:
    served = kind.storage
    root = f"/apis/{served.group}" if served.group else "/api"
    place = f"/namespaces/{NAMESPACE}" if kind.is_namespaced else ""
    return f"{root}/{served.version}{place}/{kind.plural}"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with server_process(tmp_path) as server:
        client = Client(server)
        yield client
        client.close()


def test_no_operation_of_the_served_documents_fails(client: Client) -> None:
    client.prepare()
    among = client.operations()
    assert any(one.path.startswith("/apis/fuzz.example/v2/") for one in among)
    ends = time.monotonic() + _FOR_S
    number = _SEED
    while True:
        _ask_round(client, among, number)
        client.seen.most_rss_mib = max(client.seen.most_rss_mib, client.server.rss_mib)
        number += 1
        if time.monotonic() >= ends:
            break
        client.clean()
        client.prepare()
    seen = client.seen
    print(
        f"seed {_SEED}: {seen.statuses.total()} requests for {len(among)} operations "
        f"{dict(seen.statuses)}; slowest {seen.slowest_s:.2f} s ({seen.slowest}); resident memory "
        f"up to {seen.most_rss_mib} MiB of {MOST_RSS_MIB}"
    )
    assert "request broke" not in client.server.log.read_text()
    assert client.json("GET", "/api/v1/namespaces/default")["kind"] == "Namespace"
    assert seen.most_rss_mib < MOST_RSS_MIB
    assert seen.slowest_s < SLOWEST_S, seen.slowest


def _ask_round(client: Client, among: list[Operation], number: int) -> None:
    @seeded(number)
    @settings(
        max_examples=_ROUND if _FOR_S else _EXAMPLES,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(requests(among))
    def ask(request: Request) -> None:
        client.check(request)

    ask()
