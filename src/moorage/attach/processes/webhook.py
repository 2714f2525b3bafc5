"""Admission webhook alone, for an API server that is not ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moorage.api.clock import SystemClock
from moorage.api.logs import Log
from moorage.attach.processes.connection import LONG_WATCH_S, client_of, wait_ready
from moorage.attach.webhook import InformedFacts, Reviewer, WebhookOptions, serve_webhook
from moorage.linux.idle_memory import give_back
from moorage.runtimes.custom_resources import wait_installed
from moorage.wire.client.config import ClientConfig

log = Log(__name__)


async def run(
    config: ClientConfig,
    options: WebhookOptions,
    ready: Callable[[], None],
    *,
    places_by_handler: bool = False,
    shutdown_delay_s: float = 0.0,
) -> None:
    """Run until cancelled; call `ready` once the cluster is known.

    When it is cancelled, it is not ready any more, and answers for `shutdown_delay_s`, until API
    servers have stopped to call it; cancelled once more, it ends at once.

    Raises ApiUnusableError, and OSError or ssl.SSLError for a certificate that cannot be read.
    """
    stopping = asyncio.Event()
    running = asyncio.ensure_future(
        _run(config, options, ready, stopping, places_by_handler=places_by_handler)
    )
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        stopping.set()
        if not running.done():
            log.info("webhook stops", after_s=shutdown_delay_s)
            await asyncio.wait((running,), timeout=shutdown_delay_s)
        raise
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _run(
    config: ClientConfig,
    options: WebhookOptions,
    ready: Callable[[], None],
    stopping: asyncio.Event,
    *,
    places_by_handler: bool,
) -> None:
    clock = SystemClock()
    async with (
        client_of(config, "moorage-webhook", watch_s=LONG_WATCH_S) as client,
        asyncio.TaskGroup() as tasks,
    ):
        facts = InformedFacts(client, clock)
        tasks.create_task(
            serve_webhook(
                Reviewer(facts, places_by_handler=places_by_handler),
                options,
                clock,
                is_ready=lambda: facts.is_synced,
                knows=facts.knows,
                started=_started,
                is_stopping=stopping.is_set,
            )
        )
        # It answers probes from the start: it waits for the API server as long as that takes.
        await wait_ready(client, None)
        # Their kinds come with the other parts, which may start later.
        await wait_installed(client, clock)
        tasks.create_task(facts.run())
        await facts.wait_synced()
        # Lists of thousands of objects leave pages that are not used again.
        await asyncio.to_thread(give_back)
        ready()


def _started(port: int) -> None:
    log.info("webhook listens", port=port)
