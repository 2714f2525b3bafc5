"""Measurement: runs the probe pods of a handler and reads what each costs.

Pods run through the API, a few at once, under a temporary class of their own. A pod that does not
start, prints nothing or reports less than its containers hold gives no sample, and the reason is
kept; the others are measured all the same. Pods and class are deleted at the end, also of an
interrupted measurement; what a killed one left is deleted by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import msgspec

from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.durations import format_duration
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.events import Event
from moorage.api.meta import Raw
from moorage.api.pods import ENDED_PHASES, Pod
from moorage.api.runtime_group import MEASUREMENT_LABEL, RuntimeClass
from moorage.api.text import counted
from moorage.linux.cgroups import current_cgroups, guests_outside
from moorage.runtimeclass.overhead_estimates import (
    Activity,
    NoSamplesError,
    OverheadSample,
    propose,
)
from moorage.runtimes.overhead.options import (
    MeasurementError,
    MeasureOptions,
    Shape,
    check_handler,
    find_class,
)
from moorage.runtimes.overhead.probe_pods import (
    CYCLE_WORD,
    EXPIRES_ANNOTATION,
    READY_LINE,
    class_manifest,
    payload_bytes,
    pod_manifest,
)
from moorage.runtimes.overhead.readings import (
    CgroupSource,
    Reading,
    RuntimeProcesses,
    SummarySource,
    UsageSource,
    cpu_milli,
    is_this_machine,
    outside_bytes,
    peak_memory_bytes,
    processes_behind,
)
from moorage.runtimes.overhead.report import ProbePod, Report, shortened
from moorage.runtimes.probing.pod_manifest import obstacles
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import EVENTS, PODS, RUNTIME_CLASSES
from moorage.wire.client.rest import Client, UnreachableError

_MOST_LOG_BYTES = 16384
_DELETE_S = 30.0
_ANSWER_S = 30.0

Progress = Callable[[str], None]


class Measurement:
    """One measurement of a handler through an API server.

    `progress` receives a sentence for each pod. `source` replaces the choice of a usage source.
    """

    def __init__(
        self,
        client: Client,
        options: MeasureOptions,
        clock: Clock,
        *,
        progress: Progress = lambda _: None,
        source: UsageSource | None = None,
    ) -> None:
        options.check()
        self._client = client
        self._options = options
        self._clock = clock
        self._progress = progress
        self._source = source
        self._run = secrets.token_hex(4)
        self._class_name = f"moorage-overhead-{self._run}"
        self._selector = f"{MEASUREMENT_LABEL}={self._run}"
        self._pods = Informer(
            client, PODS, namespace=options.namespace, label_selector=self._selector
        )
        self._events = Informer(client, EVENTS, namespace=options.namespace)
        self._changed = asyncio.Event()
        self._summary = SummarySource(client, clock)
        self._local: dict[str, CgroupSource | None] = {}
        self._local_lock = asyncio.Lock()

    async def run(self) -> Report:
        """Measure and return the report; its proposal is None when no pod gave a sample.

        Raises MeasurementError when there is no such handler or class, StatusError when the API
        refuses, and UnreachableError.
        """
        await check_handler(self._client, self._options)
        real = await find_class(self._client, self._options)
        await delete_leftovers(self._client, self._options.namespace, self._clock)
        self._pods.add_handler(lambda _before, _after: self._changed.set())
        try:
            await self._create_class(real)
            async with _following(self._pods, self._events):
                pods = await self._measure_all()
        finally:
            await self._clean_up()
        return self._report(real, tuple(pods))

    def _report(self, real: RuntimeClass | None, pods: tuple[ProbePod, ...]) -> Report:
        options = self._options
        samples = [pod.sample for pod in pods if pod.sample is not None]
        try:
            proposal = propose(
                samples,
                containers=options.containers,
                percent=options.percentile,
                confidence=options.confidence,
            )
        except NoSamplesError:
            proposal = None
        declared = None
        if real is not None:
            declared = dict(real.overhead.pod_fixed) if real.overhead else {}
        return Report(
            handler=options.handler,
            runtime_class=real.metadata.name if real is not None else "",
            declared=declared,
            measured_at=format_time(self._clock.now()),
            options=options,
            pods=pods,
            proposal=proposal,
        )

    async def _create_class(self, real: RuntimeClass | None) -> None:
        expires = self._clock.now() + timedelta(seconds=self._deadline_s)
        scheduling: Raw | None = None
        if real is not None and real.scheduling is not None:
            body = await self._client.request("GET", RUNTIME_CLASSES.path(name=real.metadata.name))
            scheduling = _decode(body).get("scheduling")
        manifest = class_manifest(
            self._class_name, self._run, self._options.handler, scheduling, format_time(expires)
        )
        await self._client.create(RUNTIME_CLASSES, manifest)

    @property
    def _deadline_s(self) -> int:
        """Seconds after which pods end by themselves and leftovers may be deleted."""
        options = self._options
        each_s = options.start_timeout_s + options.settle_s + options.window_s + 2 * _ANSWER_S
        return int(each_s * (options.pods // options.parallel + 1)) + 60

    @property
    def _least_s(self) -> float:
        """Seconds that all pods take if each starts at once."""
        options = self._options
        rounds = -(-options.pods // options.parallel)
        return (options.settle_s + options.window_s) * rounds

    async def _measure_all(self) -> list[ProbePod]:
        slots = asyncio.Semaphore(self._options.parallel)
        await self._pods.wait_synced()
        await self._events.wait_synced()

        began, done = self._clock.monotonic(), 0
        self._progress(
            f"{counted(self._options.pods, 'pod')} to measure, at least {_shown(self._least_s)}"
        )

        async def one(number: int, shape: Shape, activity: Activity) -> ProbePod:
            nonlocal done
            async with slots:
                pod = await self._measure(number, shape, activity)
            done += 1
            outcome = pod.error or "measured"
            self._progress(
                f"pod {number + 1}/{self._options.pods} ({activity.value}, "
                f"{counted(shape.containers, 'container')}): {outcome}"
                f"{time_left(self._clock.monotonic() - began, done, self._options.pods)}"
            )
            return pod

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one(number, shape, activity))
                for number, (shape, activity) in enumerate(self._options.rounds())
            ]
        return [task.result() for task in tasks]

    async def _measure(self, number: int, shape: Shape, activity: Activity) -> ProbePod:
        name = f"{self._class_name}-{number}"
        probe = ProbePod(
            name=name,
            node="",
            containers=shape.containers,
            payload_bytes=payload_bytes(shape),
            activity=activity,
        )
        manifest = pod_manifest(
            name, self._run, self._class_name, shape, activity, self._options, self._deadline_s
        )
        try:
            await self._client.create(PODS, manifest, self._options.namespace)
            pod = await self._started(name)
            probe = _replaced(probe, node=pod.spec.node_name)
            return await self._read(probe, pod)
        except (MeasurementError, StatusError, UnreachableError) as error:
            return _replaced(probe, error=shortened(str(error)))
        finally:
            await self._delete(name)

    async def _started(self, name: str) -> Pod:
        """Return the pod once every container has said that it holds its payload.

        Raises MeasurementError with the pod's last warning when that takes too long.
        """
        deadline_s = self._options.start_timeout_s
        try:
            async with asyncio.timeout(deadline_s):
                pod = await self._running(name)
                for container in pod.spec.containers:
                    await self._wait_ready_line(name, container.name)
        except TimeoutError:
            raise MeasurementError(f"not ready within {deadline_s:g} s{self._why(name)}") from None
        return pod

    async def _running(self, name: str) -> Pod:
        while True:
            self._changed.clear()
            pod = self._pods.get(name, self._options.namespace)
            if pod is not None:
                statuses = pod.status.container_statuses
                if pod.status.phase in ENDED_PHASES:
                    raise MeasurementError(f"ended while it started{self._why(name)}")
                if statuses and all(one.state.running is not None for one in statuses):
                    return pod
            await self._changed.wait()

    async def _wait_ready_line(self, name: str, container: str) -> None:
        """Follow a container's log to its first line. Raises MeasurementError for another one."""
        query = {"container": container, "follow": "true", "limitBytes": str(_MOST_LOG_BYTES)}
        path = PODS.path(self._options.namespace, name, "log")
        text = b""
        async with self._client.stream(
            "GET", path, query=query, accept="*/*", timeout_s=self._options.start_timeout_s
        ) as response:
            while b"\n" not in text and len(text) < _MOST_LOG_BYTES:
                chunk = await response.content.readany()
                if not chunk:
                    break
                text += chunk
        line = text.partition(b"\n")[0].decode(errors="replace").strip()
        if line != READY_LINE:
            raise MeasurementError(
                f"container {container} printed {line[:80]!r} where {READY_LINE!r} was expected: "
                "the handler does not run the probe's program properly"
            )

    def _why(self, name: str) -> str:
        pod = self._pods.get(name, self._options.namespace)
        return obstacles(name, pod, self._events)

    async def _read(self, probe: ProbePod, pod: Pod) -> ProbePod:
        """Return the probe with its readings. Raises MeasurementError, StatusError."""
        source, options = await self._source_of(pod), self._options
        await self._clock.sleep(options.settle_s)
        readings: list[Reading] = []
        cycles: list[int | None] = []
        for number in range(options.readings):
            if number:
                await self._clock.sleep(options.window_s / (options.readings - 1))
            if probe.activity is Activity.BUSY and number in (0, options.readings - 1):
                cycles.append(await self._cycle(pod))
            readings.append(await source.read(pod))
        processes: tuple[RuntimeProcesses, ...] = ()
        outside: int | None = None
        if isinstance(source, CgroupSource) and (path := source.path_of(pod.metadata.uid)):
            processes = await asyncio.to_thread(
                processes_behind, pod, source.cgroups, path, source.guest_of(pod)
            )
            outside = outside_bytes(processes)
        current = self._pods.get(probe.name, options.namespace)
        if current is None or current.status.phase in ENDED_PHASES or _has_restarted(current):
            raise MeasurementError(f"ended while it was measured{self._why(probe.name)}")
        return finished(
            _replaced(
                probe,
                source=source.name,
                readings=tuple(readings),
                processes=processes,
                outside_bytes=outside,
                cycle_cpu_us=_cycle_cpu_us(readings, cycles),
            )
        )

    async def _cycle(self, pod: Pod) -> int | None:
        """Return the number of the last cycle that a busy pod's first container printed."""
        query = {
            "container": pod.spec.containers[0].name,
            "tailLines": "2",
            "limitBytes": str(_MOST_LOG_BYTES),
        }
        path = PODS.path(self._options.namespace, pod.metadata.name, "log")
        body = await self._client.request("GET", path, query=query, accept="*/*")
        return last_cycle(body.decode(errors="replace"))

    async def _source_of(self, pod: Pod) -> UsageSource:
        if self._source is not None:
            return self._source
        node = pod.spec.node_name
        async with self._local_lock:
            if node not in self._local:
                is_here = await is_this_machine(self._client, node)
                self._local[node] = (
                    CgroupSource(current_cgroups(), self._clock) if is_here else None
                )
        local = self._local[node]
        if local is None:
            return self._summary
        path: str | None = await asyncio.to_thread(local.path_of, pod.metadata.uid)
        if path is None:
            return self._summary
        # The node knows the pod's sandbox, by which the guest's cgroup is named.
        outside = await asyncio.to_thread(guests_outside, local.cgroups)
        return self._summary if outside and local.guest_of(pod) is None else local

    async def _delete(self, name: str) -> None:
        """Delete a pod; one that is gone or cannot be reached is left to `_clean_up`."""
        with contextlib.suppress(NotFoundError, StatusError, UnreachableError):
            await self._client.delete(PODS, name, self._options.namespace, grace_period_seconds=0)

    async def _clean_up(self) -> None:
        """Delete what this measurement created, also while it is cancelled."""
        cleaning = asyncio.ensure_future(self._delete_all())
        try:
            await asyncio.shield(cleaning)
        except asyncio.CancelledError:
            await cleaning
            raise

    async def _delete_all(self) -> None:
        try:
            async with asyncio.timeout(_DELETE_S):
                await self._client.delete_collection(
                    PODS, self._options.namespace, label_selector=self._selector
                )
                with contextlib.suppress(NotFoundError):
                    await self._client.delete(RUNTIME_CLASSES, self._class_name)
        except TimeoutError:
            raise MeasurementError(
                f"probe pods were not deleted within {_DELETE_S:g} s; delete pods and classes with "
                f"the label {self._selector}"
            ) from None


async def delete_leftovers(client: Client, namespace: str, clock: Clock) -> None:
    """Delete classes and pods of measurements that were killed and are past their time.

    Raises StatusError, UnreachableError.
    """
    now = clock.now()
    for left in (await client.list(RUNTIME_CLASSES, label_selector=MEASUREMENT_LABEL)).items:
        run = left.metadata.labels.get(MEASUREMENT_LABEL, "")
        expires = left.metadata.annotations.get(EXPIRES_ANNOTATION, "")
        try:
            is_past = parse_time(expires) < now
        except ValueError:
            is_past = False
        if not is_past or not run:
            continue
        await client.delete_collection(PODS, namespace, label_selector=f"{MEASUREMENT_LABEL}={run}")
        with contextlib.suppress(NotFoundError):
            await client.delete(RUNTIME_CLASSES, left.metadata.name)


def finished(probe: ProbePod) -> ProbePod:
    """Return a probe with its sample, or with the reason why its readings give none. Pure.

    The CPU of an idle pod is overhead; that of a busy one is its containers' work.
    """
    readings = list(probe.readings)
    peak = peak_memory_bytes(readings)
    if peak is None:
        return _replaced(probe, error="no memory was reported for the pod")
    if peak < probe.payload_bytes:
        return _replaced(
            probe,
            error=f"{peak} bytes were reported for a pod whose containers hold "
            f"{probe.payload_bytes}: their memory is not charged to the pod",
        )
    cpu = cpu_milli(readings, is_stamped=probe.source == SummarySource.name)
    sample = OverheadSample(
        containers=probe.containers,
        payload_bytes=probe.payload_bytes,
        activity=probe.activity,
        memory_bytes=peak - probe.payload_bytes + (probe.outside_bytes or 0),
        cpu_milli=cpu if probe.activity is Activity.IDLE else None,
    )
    return _replaced(probe, sample=sample)


def last_cycle(text: str) -> int | None:
    """Return the number in the last whole line `cycle N` of a log, None without one."""
    numbers = [
        words[1]
        for line in text.splitlines()
        if len(words := line.split()) == 2 and words[0] == CYCLE_WORD
    ]
    return int(numbers[-1]) if numbers and numbers[-1].isdecimal() else None


def _cycle_cpu_us(readings: list[Reading], cycles: list[int | None]) -> float | None:
    first, last = readings[0].cpu_ns, readings[-1].cpu_ns
    numbers = [number for number in cycles if number is not None]
    if first is None or last is None or len(numbers) < 2 or numbers[-1] <= numbers[0]:
        return None
    return max(0, last - first) / (numbers[-1] - numbers[0]) / 1000


def _has_restarted(pod: Pod) -> bool:
    return any(status.restart_count for status in pod.status.container_statuses)


def _replaced(probe: ProbePod, **values: object) -> ProbePod:
    return msgspec.structs.replace(probe, **values)


def _decode(body: bytes) -> Raw:
    return msgspec.json.decode(body, type=dict[str, Any])


@contextlib.asynccontextmanager
async def _following(*informers: Informer[Pod] | Informer[Event]) -> AsyncIterator[None]:
    """Run informers beside the block; the first failure of either is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.run()) for informer in informers]
            yield
            for task in tasks:
                task.cancel()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def time_left(elapsed_s: float, done: int, total: int) -> str:
    """Return a phrase for the time left at the pace so far, empty at the end."""
    return f"; about {_shown(elapsed_s / done * (total - done))} left" if done < total else ""


def _shown(seconds: float) -> str:
    return format_duration(math.ceil(seconds))
