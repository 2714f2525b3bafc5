"""The node agent's part: handlers of an engine that comes back with another configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from moorage.cluster.engine.handlers import read_handlers
from moorage.wire.cri import CriClient, pb
from tests.fake_crio import Behaviour, FakeCrio, serving


class FakeContainerd16(FakeCrio):
    """Lists its handlers in the verbose status only, as containerd 1.6 does."""

    async def Status(self, request: Any, context: Any) -> pb.StatusResponse:  # noqa: N802
        status = (await super().Status(request, context)).status
        runtimes: dict[str, Any] = {name: {} for name in self.behaviour.handlers if name}
        text = json.dumps({"containerd": {"defaultRuntimeName": "runc", "runtimes": runtimes}})
        return pb.StatusResponse(status=status, info={"config": text} if request.verbose else {})


async def test_handlers_of_containerd_16_are_read_again_when_it_comes_back(
    tmp_path: Path,
) -> None:
    fake = FakeContainerd16(Behaviour(name="containerd", handlers=["", "runc"]))

    async def read(cri: CriClient) -> set[str]:
        status = await cri.call(cri.runtime.Status, pb.StatusRequest())
        return {handler.name for handler in await read_handlers(cri, status)}

    async with serving(fake, tmp_path) as endpoint, CriClient(endpoint) as cri:
        assert await read(cri) == {"", "runc"}
        # It restarts between two looks, which nothing announces.
        fake.behaviour.handlers.append("kata")
        assert await read(cri) == {"", "runc", "kata"}
