"""Pod carrier: probes as ordinary pods of one node, through the API of any Kubernetes.

Handlers are reached through RuntimeClasses of the carrier's own, since an existing class may add
overhead or select nodes. Pods and classes carry a label by which leftovers are found.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from moorage.api import quantity
from moorage.api.errors import AlreadyExistsError, ExpiredError, NotFoundError, StatusError
from moorage.api.pods import ContainerState, Pod
from moorage.api.quantity import Quantity
from moorage.api.runtime_group import PROBE_LABEL, PROBE_NAMESPACE
from moorage.runtimes.probing.carrier import (
    OUTPUT_LIMIT_BYTES,
    CarrierError,
    Outcome,
    ProbeContainer,
    ProbeRefusedError,
    ProbeResult,
    RunningProbe,
    run_to_end,
    shortened,
)
from moorage.runtimes.probing.pod_manifest import (
    CONTAINER_NAME,
    PodPlace,
    limits,
    not_expressible,
    pod_manifest,
    probe_class_name,
    probe_pod_name,
)
from moorage.runtimes.probing.port_stream import PROTOCOL, read_port
from moorage.wire.client.exec import exec_in
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import (
    EVENTS,
    NAMESPACES,
    PODS,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
)
from moorage.wire.client.rest import Client, PatchType, UnreachableError

NAMESPACE = PROBE_NAMESPACE
_ACCOUNT = "default"
_ACCOUNT_DEADLINE_S = 30.0
_END_DEADLINE_S = 30.0
_REFUSALS = frozenset({"FailedCreatePodSandBox", "RuntimeHandlerUnknown"})
"""Reasons of events by which an agent says that a sandbox cannot be made."""
_UNKNOWN_CLASS = "runtimeclass.node.k8s.io"
"""In the message of a kubelet that has not seen a new class yet, and tries again."""
_UNREACHED = re.compile(
    "code = Unavailable desc = (connection error|error reading from server|transport is closing)"
)
"""In the message of a kubelet whose engine is being restarted; it tries again. Source: grpc-go."""
_NO_IMAGE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
    }
)
"""Reasons of waiting containers that say nothing about a handler."""
_NOT_REFUSED = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of waiting containers that still come up."""
_FAILED, _SUCCEEDED = "Failed", "Succeeded"


class PodCarrier:
    """Runs probes as pods. `ProbeCarrier` documents the methods.

    `owner` is the value of the label by which leftovers are found, unique to a node. The namespace
    is created if it does not exist, unless `has_namespace`. `image` has the probes' programs, where
    it is not the image that Moorage makes for them.
    """

    def __init__(
        self,
        client: Client,
        *,
        node: str,
        owner: str,
        namespace: str = NAMESPACE,
        has_namespace: bool = False,
        image: str = "",
    ) -> None:
        self._client = client
        self._node = node
        self._owner = owner
        self._namespace = namespace
        self._has_namespace = has_namespace
        self._image = image
        self._classes: dict[str, int] = {}
        """Classes that exist, and how many probes use each."""
        self._changing_classes = asyncio.Lock()
        self._running: set[str] = set()

    async def run(
        self, handler: str, container: ProbeContainer, *, deadline_s: float
    ) -> ProbeResult:
        return await run_to_end(self, handler, container, deadline_s=deadline_s)

    @asynccontextmanager
    async def running(
        self, handler: str, container: ProbeContainer, *, deadline_s: float
    ) -> AsyncIterator[RunningProbe]:
        async with AsyncExitStack() as stack:
            try:
                probe = await stack.enter_async_context(
                    self._started(handler, container, deadline_s)
                )
            except (StatusError, UnreachableError) as error:
                raise CarrierError(f"probe cannot be run: {error}") from error
            yield probe

    async def clean(self) -> int:
        selector = f"{PROBE_LABEL}={self._owner}"
        try:
            pods = await self._client.list(PODS, self._namespace, label_selector=selector)
            left = [pod.metadata.name for pod in pods.items]
            left = [name for name in left if name not in self._running]
            for name in left:
                await self._delete(name)
            classes = await self._client.list(RUNTIME_CLASSES, label_selector=selector)
            async with self._changing_classes:
                for found in classes.items:
                    if not self._classes.get(found.metadata.name):
                        await self._delete_class(found.metadata.name)
        except (StatusError, UnreachableError) as error:
            raise CarrierError(f"earlier probes cannot be removed: {error}") from error
        return len(left)

    async def remove_classes(self) -> None:
        """Delete the classes that no probe uses now; the next probe creates its own again.

        Raises CarrierError.
        """
        async with self._changing_classes:
            for name in [name for name, users in self._classes.items() if users == 0]:
                try:
                    await self._delete_class(name)
                except (StatusError, UnreachableError) as error:
                    raise CarrierError(f"class {name} cannot be removed: {error}") from error

    async def _delete_class(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self._client.delete(RUNTIME_CLASSES, name)
        self._classes.pop(name, None)

    @asynccontextmanager
    async def _started(
        self, handler: str, container: ProbeContainer, deadline_s: float
    ) -> AsyncIterator[PodProbe]:
        """Create a pod and wait for its start; delete it on exit.

        Raises ProbeRefusedError, StatusError, UnreachableError.
        """
        reason = not_expressible(container)
        if reason:
            raise ProbeRefusedError(ProbeResult(outcome=Outcome.UNSUPPORTED, error=reason))
        started_s = time.monotonic()
        await self._ensure_namespace()
        async with self._class_of(handler) as class_name:
            place = PodPlace(
                name=probe_pod_name(self._node, secrets.token_hex(4)),
                namespace=self._namespace,
                owner=self._owner,
                node=self._node,
                class_name=class_name,
                image=self._image,
            )
            async with self._pod(container, place, started_s, deadline_s) as probe:
                yield probe

    @asynccontextmanager
    async def _pod(
        self, container: ProbeContainer, place: PodPlace, started_s: float, deadline_s: float
    ) -> AsyncIterator[PodProbe]:
        self._running.add(place.name)
        try:
            pod = await self._create(pod_manifest(container, place))
            probe = PodProbe(self._client, pod, started_s)
            try:
                async with asyncio.timeout(deadline_s):
                    await probe.wait_started()
            except TimeoutError:
                raise ProbeRefusedError(
                    ProbeResult(
                        outcome=Outcome.CUT_OFF,
                        error=f"it was not started within {deadline_s:.0f} s",
                        total_s=time.monotonic() - started_s,
                    )
                ) from None
            yield probe
        finally:
            await asyncio.shield(self._delete(place.name))
            self._running.discard(place.name)

    async def _create(self, manifest: dict[str, object]) -> Pod:
        """Create a pod. Raises ProbeRefusedError if the API refuses it."""
        try:
            return await self._client.create(PODS, manifest, self._namespace)
        except StatusError as error:
            raise ProbeRefusedError(
                ProbeResult(
                    outcome=Outcome.UNSUPPORTED,
                    error=shortened(f"the API refuses the pod: {error}"),
                )
            ) from error

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self._client.delete(PODS, name, self._namespace, grace_period_seconds=0)

    @asynccontextmanager
    async def _class_of(self, handler: str) -> AsyncIterator[str]:
        """Yield the class of a handler, which is created if need be, and stays meanwhile."""
        if not handler:
            yield ""
            return
        name = probe_class_name(self._node, handler)
        async with self._changing_classes:
            if name not in self._classes:
                body = {
                    "metadata": {"name": name, "labels": {PROBE_LABEL: self._owner}},
                    "handler": handler,
                }
                with contextlib.suppress(AlreadyExistsError):
                    await self._client.create(RUNTIME_CLASSES, body)
                self._classes[name] = 0
            self._classes[name] += 1
        try:
            yield name
        finally:
            self._classes[name] -= 1

    async def _ensure_namespace(self) -> None:
        if self._has_namespace:
            return
        labels = {
            f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "warn")
        }
        with contextlib.suppress(AlreadyExistsError):
            await self._client.create(
                NAMESPACES, {"metadata": {"name": self._namespace, "labels": labels}}
            )
        await self._wait_account()
        self._has_namespace = True

    async def _wait_account(self) -> None:
        """Wait for the namespace's default account, without which pods are refused.

        Raises CarrierError if no controller creates it.
        """
        accounts = Informer(
            self._client,
            SERVICE_ACCOUNTS,
            namespace=self._namespace,
            field_selector=f"metadata.name={_ACCOUNT}",
        )
        try:
            async with asyncio.timeout(_ACCOUNT_DEADLINE_S):
                await wait_until(accounts, lambda found: len(found) > 0)
        except TimeoutError:
            raise CarrierError(
                f"namespace {self._namespace} has no service account {_ACCOUNT} after "
                f"{_ACCOUNT_DEADLINE_S:.0f} s: does a controller manager run?"
            ) from None


class PodProbe:
    """A pod whose container was started. `RunningProbe` documents the methods."""

    cgroup = ""

    def __init__(self, client: Client, pod: Pod, started_s: float) -> None:
        self._client = client
        self._pod = pod
        self._name, self._namespace = pod.metadata.name, pod.metadata.namespace
        self._since_s = started_s
        self.start_s = 0.0

    async def wait_started(self) -> None:
        """Return when the container runs or has ended. Raises ProbeRefusedError."""
        watching = asyncio.ensure_future(self._wait(_has_started))
        refusal = asyncio.ensure_future(self._refusal())
        try:
            await asyncio.wait((watching, refusal), return_when=asyncio.FIRST_COMPLETED)
            if refusal.done() and not watching.done():
                raise self._refused(refusal.result())
            pod = watching.result()
        finally:
            watching.cancel()
            refusal.cancel()
            await asyncio.gather(watching, refusal, return_exceptions=True)
        self.start_s = time.monotonic() - self._since_s
        state = _state(pod)
        if state.running is None and state.terminated is None:
            waiting = state.waiting
            if waiting is not None and waiting.reason in _NO_IMAGE:
                raise CarrierError(f"image of a probe: {waiting.reason}: {waiting.message}")
            text = f"{waiting.reason}: {waiting.message}" if waiting else ""
            raise self._refused(text or f"{pod.status.reason}: {pod.status.message}")

    async def exec(self, command: Sequence[str], *, deadline_s: float) -> ProbeResult:
        started_s = time.monotonic()
        try:
            async with asyncio.timeout(deadline_s):
                result = await exec_in(self._client, self._namespace, self._name, command)
        except TimeoutError:
            return _cut_off(deadline_s, started_s)
        except (StatusError, UnreachableError) as error:
            return _refused(error, started_s)
        output = (result.stdout + result.stderr)[:OUTPUT_LIMIT_BYTES]
        return ProbeResult(
            outcome=Outcome.REFUSED if result.error else Outcome.ENDED,
            exit_code=result.exit_code,
            output=output,
            error=shortened(result.error),
            total_s=time.monotonic() - started_s,
        )

    async def resize(self, *, cpu_millis: int, memory_bytes: int, deadline_s: float) -> ProbeResult:
        started_s = time.monotonic()
        stated = limits(cpu_millis, memory_bytes)
        container = {
            "name": CONTAINER_NAME,
            "resources": {"limits": stated, "requests": stated},
        }
        try:
            async with asyncio.timeout(deadline_s):
                await self._client.patch(
                    PODS,
                    self._name,
                    {"spec": {"containers": [container]}},
                    self._namespace,
                    kind=PatchType.STRATEGIC,
                    subresource="resize",
                )
                wanted = _amounts(stated)
                await self._wait(lambda pod: _limits_in_force(pod) == wanted)
        except TimeoutError:
            return _cut_off(deadline_s, started_s)
        except (StatusError, UnreachableError) as error:
            return _refused(error, started_s)
        return ProbeResult(outcome=Outcome.ENDED, exit_code=0, total_s=time.monotonic() - started_s)

    async def checkpoint(self, *, deadline_s: float) -> ProbeResult:
        del deadline_s
        return ProbeResult(
            outcome=Outcome.UNSUPPORTED, error="pods are not checkpointed through the API"
        )

    async def fetch(self, port: int, *, deadline_s: float) -> ProbeResult:
        started_s = time.monotonic()
        path = f"{PODS.path(self._namespace, self._name, 'portforward')}?ports={port}"
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._client.websocket(path, PROTOCOL) as websocket,
            ):
                data, error_text = await read_port(websocket)
        except TimeoutError:
            return _cut_off(deadline_s, started_s)
        except (StatusError, UnreachableError) as error:
            return _refused(error, started_s)
        return ProbeResult(
            outcome=Outcome.ENDED,
            exit_code=0 if data else 1,
            output=data,
            error=shortened(error_text),
            total_s=time.monotonic() - started_s,
        )

    async def ended(self, *, deadline_s: float) -> ProbeResult:
        try:
            async with asyncio.timeout(deadline_s):
                pod = await self._wait(lambda pod: _state(pod).terminated is not None)
        except TimeoutError:
            return ProbeResult(
                outcome=Outcome.CUT_OFF,
                output=await self._output(),
                error=f"it did not end within {deadline_s:.0f} s",
                start_s=self.start_s,
                total_s=time.monotonic() - self._since_s,
            )
        except (StatusError, UnreachableError) as error:
            raise CarrierError(f"pod of a probe cannot be watched: {error}") from error
        end = _state(pod).terminated
        assert end is not None
        return ProbeResult(
            outcome=Outcome.ENDED,
            exit_code=end.exit_code,
            output=await self._output(),
            error=shortened(end.message),
            reason=end.reason,
            start_s=self.start_s,
            total_s=time.monotonic() - self._since_s,
        )

    async def _wait(self, is_reached: Callable[[Pod], bool]) -> Pod:
        """Return the pod once it fulfils a condition, or will not start any more.

        Raises StatusError, UnreachableError; NotFoundError if the pod is deleted.
        """
        while True:
            pod = await self._client.get(PODS, self._name, self._namespace)
            if _is_over(pod, is_reached):
                return pod
            # One watch for all changes: each that ends early costs a connection.
            with contextlib.suppress(ExpiredError):
                async for event in self._client.watch(
                    PODS,
                    self._namespace,
                    resource_version=pod.metadata.resource_version,
                    field_selector=f"metadata.name={self._name}",
                ):
                    if event.type == "DELETED":
                        raise NotFoundError.of(PODS.plural, self._name)
                    if event.object is not None and _is_over(event.object, is_reached):
                        return event.object

    async def _refusal(self) -> str:
        """Return the message of the first event that says why there is no sandbox."""
        selector = f"involvedObject.uid={self._pod.metadata.uid}"
        while True:
            found = await self._client.list(EVENTS, self._namespace, field_selector=selector)
            for event in found.items:
                if is_refusal(event.reason, event.message):
                    return event.message
            with contextlib.suppress(ExpiredError):
                async for change in self._client.watch(
                    EVENTS,
                    self._namespace,
                    resource_version=found.metadata.resource_version,
                    field_selector=selector,
                ):
                    warning = change.object
                    if warning is not None and is_refusal(warning.reason, warning.message):
                        return warning.message

    async def _output(self) -> str:
        path = PODS.path(self._namespace, self._name, "log")
        query = {"container": CONTAINER_NAME, "limitBytes": str(OUTPUT_LIMIT_BYTES)}
        try:
            body = await self._client.request("GET", path, query=query, accept="*/*")
        except (StatusError, UnreachableError) as error:
            raise CarrierError(f"log of a probe cannot be read: {error}") from error
        return body.decode(errors="replace")

    def _refused(self, why: str) -> ProbeRefusedError:
        return ProbeRefusedError(
            ProbeResult(
                outcome=Outcome.REFUSED,
                error=shortened(why),
                total_s=time.monotonic() - self._since_s,
            )
        )


def is_refusal(reason: str, message: str) -> bool:
    """Return whether an event says that a pod gets no sandbox, not just that it has none yet."""
    if reason not in _REFUSALS or _UNKNOWN_CLASS in message:
        return False
    return _UNREACHED.search(message) is None


def _state(pod: Pod) -> ContainerState:
    """Return the state of the probe's container; an empty one before it is reported."""
    for status in pod.status.container_statuses:
        if status.name == CONTAINER_NAME:
            return status.state
    return ContainerState()


def _is_over(pod: Pod, is_reached: Callable[[Pod], bool]) -> bool:
    """Return whether a pod fulfils a condition, or will not start any more."""
    return is_reached(pod) or pod.status.phase in (_FAILED, _SUCCEEDED)


def _has_started(pod: Pod) -> bool:
    """Return whether the container was started, or will not be."""
    state = _state(pod)
    if state.running is not None or state.terminated is not None:
        return True
    return state.waiting is not None and state.waiting.reason not in _NOT_REFUSED


def _limits_in_force(pod: Pod) -> dict[str, Quantity]:
    """Return the limits that the container has. API servers rewrite quantities: "1" for "1000m"."""
    for status in pod.status.container_statuses:
        if status.name == CONTAINER_NAME and status.resources is not None:
            return _amounts(status.resources.limits)
    return {}


def _amounts(quantities: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: quantity.parse(text) for name, text in quantities.items()}


def _cut_off(deadline_s: float, started_s: float) -> ProbeResult:
    return ProbeResult(
        outcome=Outcome.CUT_OFF,
        error=f"it did not end within {deadline_s:.0f} s",
        total_s=time.monotonic() - started_s,
    )


def _refused(error: Exception, started_s: float) -> ProbeResult:
    return ProbeResult(
        outcome=Outcome.REFUSED,
        error=shortened(str(error)),
        total_s=time.monotonic() - started_s,
    )
