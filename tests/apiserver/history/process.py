"""An API server as a process: `python -m tests.apiserver.history.process DIRECTORY PORT`.

As a cluster's, but that it compacts its history after `KEPT_S` and not after minutes. Says
`ready` on its standard output.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from pathlib import Path

from moorage.apiserver.authentication.authenticator import StaticToken
from moorage.apiserver.server.lifecycle import ApiServer
from moorage.apiserver.storage import Store
from tests.apiserver.options import loopback_options
from tests.authorities import prepared_authority

TOKEN = "admin-token"
KEPT_S = 2.0
"""Longer than a client of a busy machine may be late: a scribe must miss no change."""
_KEPT_STEPS = 5
_STEP_S = KEPT_S / _KEPT_STEPS


async def serve(directory: Path, port: int) -> None:
    authority = prepared_authority(directory / "pki")
    tokens = (StaticToken(TOKEN, "admin", ("system:masters",)),)
    server_options, api_options = loopback_options(directory, authority, port, static_tokens=tokens)
    async with ApiServer(server_options, api_options) as server, asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run())
        tasks.create_task(_compact(server._store))
        print("ready", flush=True)


async def _compact(store: Store) -> None:
    kept: deque[int] = deque([store.compacted], maxlen=_KEPT_STEPS)
    while True:
        await asyncio.sleep(_STEP_S)
        if len(kept) == _KEPT_STEPS:
            await store.compact(kept[0])
        kept.append(store.revision)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
