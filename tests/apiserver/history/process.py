"""An API server as a process: `python -m tests.apiserver.history.process DIRECTORY PORT`.

As a cluster's, but that it forgets its history after half a second and not after minutes. Says
`ready` on its standard output.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from moorage.apiserver.assembly import ApiOptions
from moorage.apiserver.authentication.authenticator import StaticToken
from moorage.apiserver.connect import NodeTls
from moorage.apiserver.server import ApiServer, ServerOptions
from moorage.cluster.certificates import Authority, Subject
from moorage.storage import Store

TOKEN = "admin-token"
_STEP_S = 0.1
_KEPT_STEPS = 5


async def serve(folder: Path, port: int) -> None:
    authority = Authority(folder / "pki", datetime.now(UTC))
    pair = authority.issue("server", Subject("kube-apiserver", hosts=("127.0.0.1",)))
    ca = authority.pair.certificate
    server_options = ServerOptions(
        database=folder / "state.db",
        certificate=pair.certificate,
        key=pair.key,
        client_ca=ca,
        addresses=("127.0.0.1",),
        port=port,
    )
    api_options = ApiOptions(
        signing_key=authority.signing_key(),
        issuer="https://kubernetes.default.svc",
        public_url=f"https://127.0.0.1:{port}",
        service_network=ipaddress.IPv4Network("10.96.0.0/16"),
        node_tls=NodeTls(pair.certificate, pair.key, ca),
        static_tokens=(StaticToken(TOKEN, "admin", ("system:masters",)),),
    )
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
