"""Trials: one pod for each class, run to its end through the API, and what it took.

    async with Trials(client, "default", kind="moor-run") as trials:
        result = await trials.run(Trial("gvisor", "busybox", ("echo", "hi")))

Works on any Kubernetes. Leaving the block removes the pods, also those whose creation was cut off;
a trial that is never left ends by its own deadline.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from moorage.api.clock import Clock, SystemClock, sleep_unless_set
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.events import Event
from moorage.api.pods import ENDED_PHASES, ContainerStateTerminated, Pod
from moorage.inspect.pod_findings import exit_words
from moorage.inspect.top import PodUsage, read_usage
from moorage.runtimeclass.start_phases import ADMIT, DELIVER, SCHEDULE, Phase, phases_of
from moorage.runtimes.known_classes import NO_CLASS
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import EVENTS, PODS, RUNTIME_CLASSES
from moorage.wire.client.rest import Client, UnreachableError

RUN_LABEL = "runtime.moorage.dev/trial"
_MANAGED_BY = "app.kubernetes.io/managed-by"
CONTAINER = "main"

SUCCEEDED, FAILED, REFUSED, TIMED_OUT = "succeeded", "failed", "refused", "timed out"

_GRACE_S = 5.0
"""How long an obstacle may last before the trial counts as refused."""
_SAMPLE_S = 0.5
_REMOVE_S = 20.0
_DEADLINE_MARGIN_S = 60
_LOG_BYTES = 1024 * 1024
_MOST_EVENTS = 5
_CLIENT_RESOLUTION_MS = 1.0
_WAITING = ("", "ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class Trial:
    """What to run under a class. `limits` are resources, such as `{"memory": "64Mi"}`."""

    runtime_class: str
    image: str
    arguments: tuple[str, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What became of a trial. Times are milliseconds, measured by this client unless in `phases`.

    `start_ms` is from the request to the container running, `run_ms` from there to the pod's end.
    `cpu_ms` and `memory_bytes` are the last and the highest sample; None if it ended before one.
    """

    runtime_class: str
    handler: str = ""
    outcome: str = REFUSED
    exit_code: int | None = None
    reason: str = ""
    output: str = ""
    pod: str = ""
    node: str = ""
    start_ms: float | None = None
    run_ms: float | None = None
    phases: tuple[Phase, ...] = ()
    cpu_ms: float | None = None
    memory_bytes: int | None = None
    overhead_memory_bytes: int | None = None
    events: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Return whether the command ran and ended with 0."""
        return self.outcome == SUCCEEDED


@dataclass(slots=True)
class _Course:
    """What was seen of a pod and when, in monotonic seconds of this client."""

    pod: Pod | None = None
    bound_s: float | None = None
    running_s: float | None = None
    ended_s: float | None = None
    is_gone: bool = False
    usage: PodUsage | None = None
    memory_bytes: int | None = None
    overhead_bytes: int | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Trials:
    """Runs trials in one namespace; use as `async with`. `kind` is the value of managed-by."""

    def __init__(
        self, client: Client, namespace: str, *, kind: str, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._kind = kind
        self._clock = clock or SystemClock()
        self.label = secrets.token_hex(5)
        selector = f"{RUN_LABEL}={self.label}"
        self._pods = Informer(client, PODS, namespace=namespace, label_selector=selector)
        self._warnings = Informer(
            client, EVENTS, namespace=namespace, field_selector="type=Warning"
        )
        self._courses: dict[str, _Course] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._creations: set[asyncio.Task[Pod]] = set()
        self._handlers: dict[str, str] = {}
        self._removed = asyncio.Event()
        self.keeps_pods = False

    async def __aenter__(self) -> Self:
        """Begin to watch. Raises StatusError, UnreachableError if pods cannot be listed."""
        self._handlers = await _handlers(self._client)
        # An informer would retry for ever what is refused.
        selector = f"{RUN_LABEL}={self.label}"
        await self._client.list(PODS, self._namespace, label_selector=selector)
        self._pods.add_handler(self._on_pod)
        self._warnings.add_handler(self._on_warning)
        for informer in (self._pods, self._warnings):
            self._start(informer.run())
        try:
            await self._pods.wait_synced()
        except BaseException:
            await self._stop_tasks()
            raise
        return self

    async def __aexit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Remove the pods and stop watching; `keeps_pods` counts if nothing failed."""
        try:
            if self._creations:
                # The server may create a pod whose request was cut off.
                await asyncio.wait(set(self._creations))
            if failure is not None or not self.keeps_pods:
                await self._remove_all()
        finally:
            await self._stop_tasks()

    async def _stop_tasks(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def run(self, trial: Trial) -> TrialResult:
        """Run a trial to its end, or to its timeout, and remove its pod.

        What the API server refuses is a result. Raises UnreachableError without an API server.
        """
        asked_s = self._now_s()
        try:
            pod = await self._create(trial)
        except StatusError as error:
            handler = self._handler(trial)
            return TrialResult(
                runtime_class=trial.runtime_class, handler=handler, reason=error.message
            )
        answered_s = self._now_s()
        course = self._course(pod.metadata.name)
        if course.pod is None:
            course.pod = pod
        sampling = self._start(self._sample(course))
        try:
            outcome, reason = await self._until_over(course, asked_s + trial.timeout_s)
        finally:
            sampling.cancel()
        result = await self._result(trial, course, outcome, reason, asked_s, answered_s)
        if not self.keeps_pods:
            await self._remove(pod.metadata.name)
            self._courses.pop(pod.metadata.name, None)
        return result

    async def start(self, trial: Trial) -> str:
        """Create the pod of a trial, and return its name. Raises StatusError."""
        return (await self._create(trial)).metadata.name

    async def wait_running(self, name: str, deadline_s: float) -> tuple[str, Pod | None]:
        """Block until a pod runs or cannot; return why it does not, or an empty text, and the pod.

        `deadline_s` is a time of the clock's monotonic seconds.
        """
        course = self._course(name)
        why = await self._wait(
            course, deadline_s, lambda: course.running_s is not None or course.ended_s is not None
        )
        if not why and course.running_s is None and course.pod is not None:
            status = course.pod.status
            why = status.message or status.reason or "the pod failed"
        return why.removeprefix(_OBSTACLE), course.pod

    async def remove(self, name: str) -> None:
        """Remove the pod of a trial."""
        await self._remove(name)

    # Waiting

    async def _until_over(self, course: _Course, deadline_s: float) -> tuple[str, str]:
        """Return the outcome and its reason."""
        why = await self._wait(course, deadline_s, lambda: course.ended_s is not None)
        if course.is_gone:
            return FAILED, "the pod was deleted"
        if course.ended_s is None:
            has_run = course.running_s is not None
            outcome = TIMED_OUT if has_run or not why.startswith(_OBSTACLE) else REFUSED
            return outcome, why.removeprefix(_OBSTACLE)
        assert course.pod is not None
        status = course.pod.status
        if status.phase == "Succeeded":
            return SUCCEEDED, ""
        ended = _ending(course.pod)
        if ended is None:
            return FAILED, status.message or status.reason or "the pod failed"
        return FAILED, exit_words(ended)

    async def _wait(self, course: _Course, deadline_s: float, condition: Callable[[], bool]) -> str:
        """Block until the condition holds; return why it does not when it is hopeless."""
        since_s: float | None = None
        while not condition():
            course.changed.clear()
            now_s = self._now_s()
            why = self._obstacle(course)
            if course.is_gone:
                return "the pod was deleted"
            since_s = None if not why else now_s if since_s is None else since_s
            until_s = deadline_s if since_s is None else min(deadline_s, since_s + _GRACE_S)
            if now_s >= until_s:
                return f"{_OBSTACLE}{why}" if why else "not over in time"
            await sleep_unless_set(self._clock, until_s - now_s, course.changed)
        return ""

    def _obstacle(self, course: _Course) -> str:
        """Return the reason why a pod does not run; empty if none is known."""
        pod = course.pod
        if pod is None or course.running_s is not None:
            return ""
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                return f"no node accepts the pod: {condition.message}"
        for status in pod.status.container_statuses:
            waiting = status.state.waiting
            if waiting is not None and waiting.reason not in _WAITING:
                return f"{waiting.reason}: {waiting.message}"
        warnings = self._warnings_of(pod)
        if warnings:
            return f"{warnings[-1].reason}: {warnings[-1].message}"
        return ""

    # Results

    async def _result(
        self,
        trial: Trial,
        course: _Course,
        outcome: str,
        reason: str,
        asked_s: float,
        answered_s: float,
    ) -> TrialResult:
        pod = course.pod
        assert pod is not None
        ended = _ending(pod)
        usage = course.usage
        running_s, ended_s = course.running_s, course.ended_s
        return TrialResult(
            runtime_class=trial.runtime_class,
            handler=self._handler(trial),
            outcome=outcome,
            exit_code=ended.exit_code if ended is not None else None,
            reason=reason,
            output=await self._output(pod) if running_s is not None else "",
            pod=pod.metadata.name,
            node=pod.spec.node_name,
            start_ms=None if running_s is None else _ms(asked_s, running_s),
            run_ms=None if running_s is None or ended_s is None else _ms(running_s, ended_s),
            phases=_phases(pod, course, asked_s, answered_s),
            cpu_ms=None if usage is None or usage.cpu_ns is None else usage.cpu_ns / 1e6,
            memory_bytes=course.memory_bytes,
            overhead_memory_bytes=course.overhead_bytes,
            events=tuple(
                f"{event.reason}: {event.message}"
                for event in self._warnings_of(pod)[-_MOST_EVENTS:]
            ),
        )

    async def _output(self, pod: Pod) -> str:
        """Return the container's output, standard output and error together, at most 1 MiB."""
        meta = pod.metadata
        query = {"container": CONTAINER, "limitBytes": str(_LOG_BYTES)}
        path = PODS.path(meta.namespace, meta.name, "log")
        try:
            body = await self._client.request("GET", path, query=query, accept="*/*")
        except StatusError as error:
            return f"(no output: {error.message})"
        return body.decode(errors="replace")

    def _handler(self, trial: Trial) -> str:
        return self._handlers.get(trial.runtime_class, "")

    def _warnings_of(self, pod: Pod) -> list[Event]:
        events = [
            event for event in self._warnings if event.involved_object.uid == pod.metadata.uid
        ]
        return sorted(events, key=lambda event: event.last_timestamp or event.event_time or "")

    # Sampling

    async def _sample(self, course: _Course) -> None:
        """Read what the pod uses while it runs."""
        while course.ended_s is None and not course.is_gone:
            if course.running_s is None or course.pod is None:
                await self._clock.sleep(_SAMPLE_S / 10)
                continue
            meta = course.pod.metadata
            usages = await read_usage(
                self._client, [course.pod.spec.node_name], namespace=self._namespace
            )
            usage = usages.get(f"{meta.namespace}/{meta.name}")
            if usage is not None:
                course.usage = usage
                course.memory_bytes = _highest(course.memory_bytes, usage.memory_bytes)
                course.overhead_bytes = _highest(course.overhead_bytes, usage.overhead_memory_bytes)
            await self._clock.sleep(_SAMPLE_S)

    # Pods

    async def _create(self, trial: Trial) -> Pod:
        creation = asyncio.ensure_future(
            self._client.create(PODS, self._manifest(trial), self._namespace)
        )
        self._creations.add(creation)
        creation.add_done_callback(self._created)
        return await asyncio.shield(creation)

    def _created(self, creation: asyncio.Task[Pod]) -> None:
        self._creations.discard(creation)
        if not creation.cancelled():
            # Retrieved: one whose caller was cancelled would be reported as lost.
            creation.exception()

    def _manifest(self, trial: Trial) -> dict[str, Any]:
        name = trial.runtime_class if trial.runtime_class != NO_CLASS else "default"
        container: dict[str, Any] = {
            "name": CONTAINER,
            "image": trial.image,
            "imagePullPolicy": "IfNotPresent",
        }
        if trial.arguments:
            container["args"] = list(trial.arguments)
        if trial.limits:
            container["resources"] = {"limits": dict(trial.limits)}
        spec: dict[str, Any] = {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            # A trial whose client was killed ends by itself.
            "activeDeadlineSeconds": int(trial.timeout_s) + _DEADLINE_MARGIN_S,
        }
        if trial.runtime_class != NO_CLASS:
            spec["runtimeClassName"] = trial.runtime_class
        return {
            "metadata": {
                "generateName": f"{self._kind}-{name}-",
                "labels": {_MANAGED_BY: self._kind, RUN_LABEL: self.label},
            },
            "spec": spec,
        }

    async def _remove(self, name: str) -> None:
        try:
            await self._client.delete(PODS, name, self._namespace)
        except NotFoundError:
            # Someone else deleted it.
            return

    async def _remove_all(self) -> None:
        """Delete every pod of these trials; return when they are gone, or after 20 s."""
        selector = f"{RUN_LABEL}={self.label}"
        pods = await self._client.list(PODS, self._namespace, label_selector=selector)
        for pod in pods.items:
            await self._remove(pod.metadata.name)
        try:
            async with asyncio.timeout(_REMOVE_S):
                while len(self._pods):
                    self._removed.clear()
                    await self._removed.wait()
        except TimeoutError:
            # They are marked for deletion: the node is slow, or away.
            return

    # Events of the watch

    def _course(self, name: str) -> _Course:
        return self._courses.setdefault(name, _Course())

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        known = after or before
        assert known is not None
        course = self._course(known.metadata.name)
        now_s = self._now_s()
        if after is None:
            course.is_gone = True
            self._removed.set()
        else:
            course.pod = after
            if after.spec.node_name and course.bound_s is None:
                course.bound_s = now_s
            is_over = after.status.phase in ENDED_PHASES
            if course.running_s is None and _has_started(after):
                course.running_s = now_s
            if is_over and course.ended_s is None:
                course.ended_s = now_s
        course.changed.set()

    def _on_warning(self, before: Event | None, after: Event | None) -> None:
        del before
        if after is not None and after.involved_object.name in self._courses:
            self._courses[after.involved_object.name].changed.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _now_s(self) -> float:
        return self._clock.monotonic()


_OBSTACLE = "\0"


def _has_started(pod: Pod) -> bool:
    """Return whether the container has been started, even if it has ended by now."""
    if pod.status.phase == "Running":
        return True
    ended = _ending(pod)
    return ended is not None and ended.reason != "StartError"


def _ending(pod: Pod) -> ContainerStateTerminated | None:
    for status in pod.status.container_statuses:
        if status.name == CONTAINER:
            return status.state.terminated
    return None


def _phases(pod: Pod, course: _Course, asked_s: float, answered_s: float) -> tuple[Phase, ...]:
    """Return admit and schedule as this client saw them, and what the pod says of the rest."""
    phases = [Phase(ADMIT, _ms(asked_s, answered_s), _CLIENT_RESOLUTION_MS)]
    if course.bound_s is not None:
        # The watch may be faster than the answer.
        bound_s = max(course.bound_s, answered_s)
        phases.append(Phase(SCHEDULE, _ms(answered_s, bound_s), _CLIENT_RESOLUTION_MS))
    on_node = phases_of(pod)
    if on_node is not None:
        phases += [phase for phase in on_node.phases if phase.name not in (SCHEDULE, DELIVER)]
    return tuple(phases)


def _ms(begin_s: float, end_s: float) -> float:
    return round(1000 * max(0.0, end_s - begin_s), 1)


def _highest(before: int | None, now: int | None) -> int | None:
    return now if before is None else before if now is None else max(before, now)


async def _handlers(client: Client) -> dict[str, str]:
    """Return the handler of each class; empty where classes may not be read."""
    try:
        classes = await client.list(RUNTIME_CLASSES)
    except (StatusError, UnreachableError):
        return {}
    return {one.metadata.name: one.handler for one in classes.items}
