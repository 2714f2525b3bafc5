"""Demo on a running cluster: applies the examples, reports what runs where, deletes them.

Everything goes through the API, as a user's client would: the manifests, the watch, the command
inside each container that prints its kernel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.api.conditions import is_ready
from moorage.api.events import Event
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.cluster.errors import ClusterError
from moorage.inspect.manifests import Applier, Manifest
from moorage.wire.client.exec import ExecResult, exec_in
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import EVENTS, PODS, RUNTIME_CLASSES
from moorage.wire.client.rest import Client

_SETTLE_S = 120.0
_DELETE_S = 60.0
_NAMESPACE = "default"
_PACKAGE = Path(__file__).parents[1]
# Kinds that create pods: one pod without `spec.replicas`.
_REPLICATED = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})

Report = Callable[[str], None]


class DemoError(ClusterError):
    """An example did not run as expected, or there are no examples."""


@dataclass(frozen=True, slots=True)
class DemoRow:
    """A row of the table. `start_s` is the time from the pod's creation to Ready, by its watch."""

    pod: str
    status: str
    runtime_class: str
    handler: str
    node: str
    ip: str
    kernel: str
    inside: str
    start_s: float | None
    reason: str = ""


class Journal:
    """What a watch shows of the pods: each state is reported once, each start measured."""

    def __init__(self, report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._created_s: dict[str, float] = {}
        self._ready_s: dict[str, float] = {}
        self._reported: set[tuple[str, ...]] = set()

    def start_s(self, pod: str) -> float | None:
        """Return the time from a pod's creation to Ready, None if it was never ready."""
        if pod not in self._ready_s:
            return None
        return round(self._ready_s[pod] - self._created_s[pod], 2)

    def on_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Report a pod's state."""
        del before
        if after is None:
            return
        name, now = after.metadata.name, self._clock()
        self._created_s.setdefault(name, now)
        if is_ready(after.status.conditions):
            self._ready_s.setdefault(name, now)
        if not after.metadata.deletion_timestamp:
            # Messages count seconds and attempts: the same reason is reported once.
            self._report_once(
                (name, progress(after)), f"pod {name}: {progress(after, detail=True)}"
            )

    def on_event(self, before: Event | None, after: Event | None) -> None:
        """Report a warning about a pod."""
        del before
        if after is not None and _is_pod_warning(after):
            key = (after.involved_object.name, after.reason)
            self._report_once(key, f"pod {key[0]}: {after.reason}: {after.message}")

    def _report_once(self, key: tuple[str, ...], sentence: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            self._report(sentence)


class Demo:
    """One run of the demo on a running cluster."""

    def __init__(
        self,
        client: Client,
        manifests: Sequence[Manifest],
        report: Report,
        *,
        settle_s: float = _SETTLE_S,
        run_in: Callable[[Client, str, str, list[str]], Awaitable[ExecResult]] = exec_in,
        make_informer: Callable[..., Informer[Any]] = Informer,
        make_applier: Callable[[Client], Applier] = Applier,
    ) -> None:
        self._make_applier = make_applier
        self._client = client
        self._manifests = manifests
        self._report = report
        self._settle_s = settle_s
        self._run_in = run_in
        self._journal = Journal(report)
        self._pods = make_informer(client, PODS, namespace=_NAMESPACE)
        self._classes = make_informer(client, RUNTIME_CLASSES)
        self._warnings = make_informer(client, EVENTS, namespace=_NAMESPACE)
        self._changed = asyncio.Event()

    async def run(self) -> list[DemoRow]:
        """Apply the examples, run a command in each pod, delete them. Return the table's rows.

        Raises DemoError with each container's message and each pod's last warning when pods do not
        run within `settle_s`; StatusError and ManifestError when the API refuses an example.
        """
        self._pods.add_handler(self._journal.on_pod)
        self._pods.add_handler(lambda *_: self._changed.set())
        self._warnings.add_handler(self._journal.on_event)
        try:
            async with asyncio.TaskGroup() as tasks:
                informers = (self._pods, self._classes, self._warnings)
                following = [tasks.create_task(informer.run()) for informer in informers]
                rows = await self._run_all()
                for task in following:
                    task.cancel()
        except ExceptionGroup as failures:
            # The first is the cause; the command prints one sentence.
            raise failures.exceptions[0] from None
        return rows

    async def _run_all(self) -> list[DemoRow]:
        applier = self._make_applier(self._client)
        await self._pods.wait_synced()
        await self._classes.wait_synced()
        await self._warnings.wait_synced()
        for manifest in self._manifests:
            await applier.apply(manifest)
            self._report(f"applied {manifest.kind} {manifest.name} ({manifest.api_version})")
        await self._wait("pods do not run", self._is_settled, self._settle_s)
        rows = [await self._row(pod) for pod in sorted(self._pods, key=_name)]
        for manifest in reversed(self._manifests):
            await applier.delete(manifest)
        self._report("deleted the examples")
        await self._wait("pods are still there", lambda: not len(self._pods), _DELETE_S)
        return rows

    async def _wait(self, problem: str, condition: Callable[[], bool], within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            failures = "".join(failures_of(self._pods, self._warnings))
            raise DemoError(f"{problem} after {within_s:g} s:{failures}") from None

    def _is_settled(self) -> bool:
        return len(self._pods) == expected_pods(self._manifests) and all(
            is_ready(pod.status.conditions) or refusal(pod) for pod in self._pods
        )

    async def _row(self, pod: Pod) -> DemoRow:
        output, name = "", pod.metadata.name
        if is_ready(pod.status.conditions):
            script = ["sh", "-c", DETECTION_SCRIPT]
            output = (await self._run_in(self._client, _NAMESPACE, name, script)).stdout
        runtime_class = self._classes.get(pod.spec.runtime_class_name or "")
        return row_of(pod, runtime_class, output, self._journal.start_s(name))


def row_of(
    pod: Pod, runtime_class: RuntimeClass | None, output: str, start_s: float | None
) -> DemoRow:
    """Return a pod's row; `output` is that of `DETECTION_SCRIPT`, empty if the pod is not ready."""
    kernel, inside = detect_runtime(output) if is_ready(pod.status.conditions) else ("", "")
    name = pod.spec.runtime_class_name or ""
    handler = runtime_class.handler if runtime_class else ""
    return DemoRow(
        pod=pod.metadata.name,
        status=pod.status.phase,
        runtime_class=name,
        handler=handler if name else "(default)",
        node=pod.spec.node_name,
        ip=pod.status.pod_ip,
        kernel=kernel,
        inside=inside,
        start_s=start_s,
        reason=refusal(pod),
    )


def failures_of(pods: Iterable[Pod], events: Iterable[Event]) -> Iterator[str]:
    """Yield a line for each pod that is not ready, and one for its last warning."""
    warnings = {event.involved_object.name: event for event in events if _is_pod_warning(event)}
    for pod in sorted(pods, key=_name):
        if is_ready(pod.status.conditions) and not pod.metadata.deletion_timestamp:
            continue
        yield f"\n  {_name(pod)}: {progress(pod, detail=True)}"
        warning = warnings.get(_name(pod))
        if warning is not None:
            yield f"\n    event {warning.reason}: {warning.message}"


def _name(pod: Pod) -> str:
    return pod.metadata.name


def expected_pods(manifests: Iterable[Manifest]) -> int:
    """Return how many pods the manifests create in the demo's namespace."""
    return sum(_pods_of(manifest) for manifest in manifests if manifest.namespace == _NAMESPACE)


def _pods_of(manifest: Manifest) -> int:
    if manifest.kind == "Pod":
        return 1
    if manifest.kind not in _REPLICATED:
        return 0
    replicas = (manifest.document.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def refusal(pod: Pod) -> str:
    """Return why no node accepts the pod, empty if one does or it is not scheduled yet."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


def _is_pod_warning(event: Event) -> bool:
    # FailedScheduling repeats the pod's condition, which is already reported.
    return (
        event.type == "Warning"
        and event.involved_object.kind == "Pod"
        and event.reason != "FailedScheduling"
    )


def progress(pod: Pod, *, detail: bool = False) -> str:
    """Return the pod's state, with the messages of its waiting containers if `detail`."""
    if is_ready(pod.status.conditions):
        return "running"
    why = refusal(pod)
    if why:
        return f"no node accepts it: {why}"
    if not pod.spec.node_name:
        return "waits for a node"
    waiting = _waiting_reasons(pod, detail=detail)
    return f"starting on {pod.spec.node_name}" + (f" ({waiting})" if waiting else "")


def _waiting_reasons(pod: Pod, *, detail: bool) -> str:
    waiting = (
        status.state.waiting
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if status.state.waiting is not None
    )
    reasons = (
        f"{state.reason}: {state.message}" if detail and state.message else state.reason
        for state in waiting
    )
    return ", ".join(dict.fromkeys(reasons))


def find_examples(directory: Path | None = None) -> Path:
    """Return the directory of the examples; that of Moorage's own if `directory` is None.

    Raises DemoError if it has no manifests.
    """
    if directory is None:
        # An installed wheel has them in the package, a checkout beside `src`.
        candidates = (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples")
        directory = next((path for path in candidates if path.is_dir()), candidates[0])
    if not directory.is_dir() or not any(directory.glob("*.yaml")):
        raise DemoError(
            f"there are no examples in {directory.absolute()}; name their directory with --examples"
        )
    return directory


# Runtime detection from inside a container.
#
# gVisor names itself in its kernel log; crun links `/dev/core` to `/proc/kcore`; runc masks files
# with a null device of its own `/dev`. Any other runtime is unknown.

DETECTION_SCRIPT = (
    "uname -r; "
    "dmesg 2>/dev/null | grep -q gVisor && echo gvisor; "
    "test -L /dev/core && echo core; "
    "grep -q ' /null /proc/keys .* - tmpfs ' /proc/self/mountinfo && echo masked; "
    "true"
)
"""A shell script for `sh -c`: the kernel's release on the first line, then traces, one a line."""


def detect_runtime(output: str) -> tuple[str, str]:
    """Return the kernel's release and the runtime by the script's output, `?` if unknown."""
    kernel, *traces = output.split() or [""]
    if "gvisor" in traces:
        return kernel, "gVisor"
    if "core" in traces:
        return kernel, "crun"
    if "masked" in traces:
        return kernel, "runc"
    return kernel, "?"
