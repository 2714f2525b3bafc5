"""The informers that controllers share."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from moorage.api.errors import NotFoundError
from moorage.controllers.informers import Informers
from tests.clocks import FakeClock, settle
from tests.controllers.memory import MemoryClient

NETWORKING, STORAGE = (f"/apis/{group}.k8s.io/v1" for group in ("networking", "storage"))
NEWER = {"servicecidrs", "ipaddresses", "volumeattributesclasses"}


def serving(*names: str) -> bytes:
    return json.dumps({"resources": [{"name": name} for name in names]}).encode()


async def test_kinds_that_an_older_server_lacks_are_not_listed_before_it_has_them() -> None:
    clock = FakeClock()
    client: Any = MemoryClient(clock)
    client.answers["GET", NETWORKING] = serving("ingresses")
    client.answers["GET", STORAGE] = NotFoundError("no such version")
    running = asyncio.ensure_future(Informers(client, clock).run())
    await settle()
    listed = {request.plural for request in client.requests if request.verb == "list"}
    assert "pods" in listed
    assert not listed & NEWER
    client.answers["GET", NETWORKING] = serving("servicecidrs", "ipaddresses")
    client.answers["GET", STORAGE] = serving("volumeattributesclasses")
    clock.advance(60)
    await settle()
    assert {request.plural for request in client.requests if request.verb == "list"} >= NEWER
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
