"""An engine of its own in a process of its own, for tests that kill it.

    python -m tests.engine.whole.serve ROOT IMAGES SPARES [drain]

It says `ready` once it answers, and ends in order on SIGTERM. With `drain` it gives back what it
keeps ready for pods to come, and ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from moorage.api.logs import configure
from moorage.engine.engine import running
from moorage.engine.handlers import search_path
from moorage.engine.options import EngineOptions
from moorage.engine.paths import EnginePaths


async def _serve(root: Path, archive: Path, spares: int, *, is_draining: bool) -> None:
    run = root / "r"
    options = EngineOptions(
        paths=EnginePaths(root / "d", run),
        socket=run / "engine.sock",
        search_path=search_path(),
        cni_configurations=root / "cni",
        handler_directories=(root / "handlers.d",),
        spare_networks=0 if is_draining else spares,
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    async with running(options) as engine:
        if is_draining:
            await engine.context.networks.drain()
            return
        async with engine.serving():
            if not engine.images.all():
                await engine.images.load(archive)
            print("ready", flush=True)
            await stopping.wait()


if __name__ == "__main__":
    configure("info")
    asyncio.run(
        _serve(
            Path(sys.argv[1]),
            Path(sys.argv[2]),
            int(sys.argv[3]),
            is_draining="drain" in sys.argv[4:],
        )
    )
