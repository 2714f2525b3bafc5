"""Running of the suite under a handler, one probe at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from moorage.runtimes.probing.carrier import (
    CarrierError,
    Outcome,
    ProbeCarrier,
    ProbeRefusedError,
    ProbeResult,
)
from moorage.runtimes.probing.evidence import Evidence
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.programs import architectures, program_path
from moorage.runtimes.probing.programs.serving import PORT
from moorage.runtimes.probing.suite import (
    CHECKPOINT,
    EXEC,
    FETCH,
    GROWN_MEMORY_BYTES,
    LARGE_CPU_MILLIS,
    PLAIN,
    PROBES,
    RESIZE,
    Probe,
)

WORKING_DEADLINE_S = 20.0
"""Time within which a handler's first container must have ended."""


async def run_plain(
    carrier: ProbeCarrier, handler: str, host: HostFacts, *, deadline_s: float = WORKING_DEADLINE_S
) -> ProbeResult:
    """Run the probe that decides whether a handler works. Raises CarrierError."""
    container = PROBES[PLAIN].container(host)
    result = await carrier.run(handler, container, deadline_s=deadline_s)
    if result.outcome is Outcome.UNSUPPORTED:
        # An API server that refuses the pod says nothing about the handler.
        raise CarrierError(result.error)
    return result


async def run_suite(
    carrier: ProbeCarrier,
    handler: str,
    host: HostFacts,
    plain: ProbeResult,
    probes: Collection[str] = PROBES.keys(),
) -> Evidence:
    """Run probes, all by default, under a handler whose plain probe ended. Raises CarrierError."""
    results = {PLAIN: plain}
    if host.architecture in architectures():
        async for name, result in _results(carrier, handler, host, probes):
            results[name] = result
    return Evidence(host, results)


async def _results(
    carrier: ProbeCarrier, handler: str, host: HostFacts, probes: Collection[str]
) -> AsyncIterator[tuple[str, ProbeResult]]:
    for name, probe in PROBES.items():
        if name == PLAIN or name not in probes:
            continue
        container = probe.container(host)
        if "devices" in probe.settings and not container.devices:
            # The verdict is that the node has none.
            continue
        if probe.is_kept:
            async for step in _kept(carrier, handler, host, name, probe):
                yield step
        else:
            yield name, await carrier.run(handler, container, deadline_s=probe.deadline_s)


async def _kept(
    carrier: ProbeCarrier, handler: str, host: HostFacts, name: str, probe: Probe
) -> AsyncIterator[tuple[str, ProbeResult]]:
    deadline_s = probe.deadline_s
    try:
        async with carrier.running(
            handler, probe.container(host), deadline_s=deadline_s
        ) as running:
            yield name, ProbeResult(outcome=Outcome.ENDED, exit_code=0, start_s=running.start_s)
            command = [program_path("facts")]
            yield f"{name}/{EXEC}", await running.exec(command, deadline_s=deadline_s)
            yield f"{name}/{FETCH}", await running.fetch(PORT, deadline_s=deadline_s)
            yield (
                f"{name}/{RESIZE}",
                await running.resize(
                    cpu_millis=LARGE_CPU_MILLIS,
                    memory_bytes=GROWN_MEMORY_BYTES,
                    deadline_s=deadline_s,
                ),
            )
            # Last, since a checkpoint may end the container.
            yield f"{name}/{CHECKPOINT}", await running.checkpoint(deadline_s=deadline_s)
    except ProbeRefusedError as error:
        yield name, error.result
