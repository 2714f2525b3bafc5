"""Probe pods of conformance tests: run one to its end, and return what it did.

A pod runs under the class that is tested, with its overhead, selectors and tolerations. It is
bounded in time and output, and deleted whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Protocol

from moorage.api.errors import StatusError
from moorage.api.meta import Raw
from moorage.api.pods import ENDED_PHASES, ContainerStateTerminated, Pod
from moorage.api.runtime_group import GROUP
from moorage.runtimeclass.conformance.outcomes import MOST_OUTPUT, Outcome
from moorage.runtimeclass.conformance.properties import Probe
from moorage.runtimes.probing.pod_manifest import obstacles
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import EVENTS, PODS
from moorage.wire.client.rest import Client

# Errors of conformance tests.


class ConformanceError(Exception):
    """A class cannot be tested; the text says why and what to do."""


RUN_LABEL = f"{GROUP}/conformance-run"
"""Label of probe pods: the run they belong to."""

_MOST_ERROR = 1024
_DELETE_S = 30.0


class ProbeRunner(Protocol):
    """Runs a probe and returns its outcome, whatever the handler does."""

    async def run(self, name: str, probe: Probe, image: str) -> Outcome:
        """Run a probe as the pod of this name. Raises UnreachableError."""
        ...


class PodRunner:
    """Runs probes as pods of a class. Use as `async with`: it watches pods and events meanwhile.

    A pod that has not ended after `timeout_s` is cut off. `run` labels the pods.
    """

    def __init__(
        self,
        client: Client,
        *,
        run: str,
        runtime_class: str,
        namespace: str,
        node: str,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._run = run
        self._class = runtime_class
        self._namespace = namespace
        self._node = node
        self._timeout_s = timeout_s
        self._selector = f"{RUN_LABEL}={run}"
        self._pods = Informer(client, PODS, namespace=namespace, label_selector=self._selector)
        self._events = Informer(client, EVENTS, namespace=namespace)
        self._changed = asyncio.Event()
        self._pods.add_handler(lambda _before, _after: self._changed.set())

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch pods and events during the block; delete all pods of the run at its end."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(informer.run()) for informer in (self._pods, self._events)
                ]
                await self._pods.wait_synced()
                await self._events.wait_synced()
                try:
                    yield
                finally:
                    for task in tasks:
                        task.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            await _completed(self._delete_all())

    async def run(self, name: str, probe: Probe, image: str) -> Outcome:
        manifest = self._manifest(name, probe, image)
        try:
            await self._client.create(PODS, manifest, self._namespace)
        except StatusError as error:
            return Outcome(error=_shortened(f"the API refused the pod: {error.message}"))
        try:
            try:
                async with asyncio.timeout(self._timeout_s):
                    pod = await self._ended(name)
            except TimeoutError:
                why = self._why(name)
                return Outcome(
                    error=_shortened(f"cut off after {self._timeout_s:g} s{why}"),
                    node=self._node_of(name),
                )
            return await self._outcome(pod)
        finally:
            with contextlib.suppress(StatusError):
                await self._client.delete(PODS, name, self._namespace, grace_period_seconds=0)

    async def _ended(self, name: str) -> Pod:
        while True:
            self._changed.clear()
            pod = self._pods.get(name, self._namespace)
            if pod is not None and pod.status.phase in ENDED_PHASES:
                return pod
            await self._changed.wait()

    async def _outcome(self, pod: Pod) -> Outcome:
        ended = _terminated(pod)
        status = pod.status
        if ended is None or (status.reason and not status.container_statuses):
            why = f"{status.reason}: {status.message}".strip(": ")
            return Outcome(
                error=_shortened(f"no container ended: {why or status.phase}"),
                node=pod.spec.node_name,
            )
        did_not_start = ended.exit_code == 128 and bool(ended.message)
        return Outcome(
            has_ended=not did_not_start,
            exit_code=ended.exit_code,
            reason=ended.reason,
            output=await self._output(pod),
            error=_shortened(f"{ended.reason}: {ended.message}") if did_not_start else "",
            node=pod.spec.node_name,
            pod_ip=status.pod_ip,
        )

    async def _output(self, pod: Pod) -> str:
        path = PODS.path(self._namespace, pod.metadata.name, "log")
        query = {"limitBytes": str(4 * MOST_OUTPUT)}
        try:
            body = await self._client.request("GET", path, query=query, accept="*/*")
        except StatusError as error:
            return f"(log: {error.message})"
        return body[: 4 * MOST_OUTPUT].decode(errors="replace")

    def _node_of(self, name: str) -> str:
        pod = self._pods.get(name, self._namespace)
        return "" if pod is None else pod.spec.node_name

    def _why(self, name: str) -> str:
        return obstacles(name, self._pods.get(name, self._namespace), self._events)

    async def _delete_all(self) -> None:
        try:
            async with asyncio.timeout(_DELETE_S):
                await self._client.delete_collection(
                    PODS, self._namespace, label_selector=self._selector
                )
        except TimeoutError:
            raise ConformanceError(
                f"probe pods were not deleted within {_DELETE_S:g} s; delete pods with the label "
                f"{self._selector}"
            ) from None

    def _manifest(self, name: str, probe: Probe, image: str) -> Raw:
        container: Raw = {"name": "probe", "image": image, "imagePullPolicy": "IfNotPresent"}
        if command := probe.command:
            container["command"] = command
        if probe.resources:
            container["resources"] = probe.resources
        spec: Raw = {
            "runtimeClassName": self._class,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            # The pod ends by itself if this process is killed.
            "activeDeadlineSeconds": int(2 * self._timeout_s) + 10,
            "automountServiceAccountToken": False,
            "containers": [container],
        }
        if self._node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self._node}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": {RUN_LABEL: self._run},
            },
            "spec": spec,
        }


def _terminated(pod: Pod) -> ContainerStateTerminated | None:
    states = [one.state.terminated for one in pod.status.container_statuses]
    return states[0] if states else None


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_MOST_ERROR]


async def _completed(cleaning: Coroutine[None, None, None]) -> None:
    """Await a clean-up to its end, also while this task is cancelled."""
    task = asyncio.ensure_future(cleaning)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
