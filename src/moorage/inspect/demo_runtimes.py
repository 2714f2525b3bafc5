"""Runtimes in the demo: classes that no user wrote, a refusal by a floor, a pod that is fitted.

Works through the API, like the rest of the demo, and deletes what it creates.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import msgspec

from moorage.api.clock import SystemClock
from moorage.api.conditions import is_ready
from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.meta import Raw
from moorage.api.pods import Pod
from moorage.api.runtime_group import (
    API_VERSION,
    CHOICE_REASON_ANNOTATION,
    GROUP,
    ISOLATION_LABEL,
    MANAGED,
    MANAGED_LABEL,
    NEEDS_ANNOTATION,
    RuntimeClass,
    RuntimeProfile,
)
from moorage.cluster.errors import ClusterError
from moorage.cluster.images.catalogue import BUSYBOX
from moorage.runtimeclass.isolation import LEVELS
from moorage.runtimes.custom_resources import wait_installed
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import (
    NODES,
    PODS,
    RUNTIME_CLASSES,
    RUNTIME_POLICIES,
    RUNTIME_PROFILES,
)
from moorage.wire.client.rest import Client

_NAMESPACE = "default"
_POLICY, _REFUSED, _FITTED = "demo-floor", "refused", "fitted"
_FOUND_WITHIN_S = 30.0
_RUNNING_WITHIN_S = 60.0

Report = Callable[[str], None]


class DemoRuntimesError(ClusterError):
    """The runtimes were not found, or a pod was not treated as the policy says."""


class FoundClass(msgspec.Struct, frozen=True):
    """A class that was made for a handler: its isolation level, as the label spells it."""

    name: str
    handler: str
    isolation: str


class RuntimesShown(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo showed: the classes found, the refusal, and the fitted pod's class and reason.

    Refusal and fitting are empty where all classes isolate alike.
    """

    classes: tuple[FoundClass, ...]
    refusal: str = ""
    fitted_class: str = ""
    fitted_reason: str = ""

    @property
    def strongest(self) -> str:
        """The class that isolates most."""
        return max(self.classes, key=lambda found: LEVELS[found.isolation]).name


async def show_runtimes(client: Client, report: Report) -> RuntimesShown:
    """Wait for the classes of the node's handlers, then show a floor and a need.

    Raises DemoRuntimesError, StatusError.
    """
    await _wait_definitions(client)
    classes = await _find_classes(client)
    for found in classes:
        report(f"found handler {found.handler}: class {found.name}, {found.isolation}")
    by_level = sorted(classes, key=lambda found: LEVELS[found.isolation])
    weakest, strongest = by_level[0], by_level[-1]
    if weakest.isolation == strongest.isolation:
        return RuntimesShown(classes=classes)
    try:
        await client.create(RUNTIME_POLICIES, _floor(strongest.isolation), _NAMESPACE)
        refusal = await _refusal(client, weakest)
        report(f"pod {_REFUSED}: {refusal}")
        pod = await _fitted(client, strongest.isolation)
        reason = pod.metadata.annotations.get(CHOICE_REASON_ANNOTATION, "")
        report(f"pod {_FITTED} runs in class {pod.spec.runtime_class_name}: {reason}")
    finally:
        await asyncio.shield(_delete(client))
    return RuntimesShown(
        classes=classes,
        refusal=refusal,
        fitted_class=pod.spec.runtime_class_name or "",
        fitted_reason=reason,
    )


async def _wait_definitions(client: Client) -> None:
    """Wait until the kinds of our own group are served: a new cluster is ready before."""
    try:
        async with asyncio.timeout(_FOUND_WITHIN_S):
            await wait_installed(client, SystemClock())
    except TimeoutError:
        raise DemoRuntimesError(
            f"the kinds of {GROUP} are not served after {_FOUND_WITHIN_S:g} s; see `moor logs`"
        ) from None


async def read_features(client: Client, within_s: float) -> tuple[RuntimeProfile, ...]:
    """Return the profiles that have features, after all have, or the time is over."""
    profiles = Informer(client, RUNTIME_PROFILES)
    # The others are still being probed then, and the caller says so.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await wait_until(profiles, lambda found: all(one.status.features for one in found))
    return tuple(profile for profile in profiles if profile.status.features)


async def _find_classes(client: Client) -> tuple[FoundClass, ...]:
    """Return the managed classes, once each handler of the nodes has one with its isolation.

    Its profile says so too by then: floors and needs believe profiles alone. A handler that is
    another one under a second name has no class.
    """
    listed = await client.list(NODES)
    handlers = {
        handler.name
        for node in listed.items
        for handler in node.status.runtime_handlers
        if handler.name
    }
    classes, profiles = Informer(client, RUNTIME_CLASSES), Informer(client, RUNTIME_PROFILES)
    # A handler that does not work has no class; the others are shown.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FOUND_WITHIN_S):
            await wait_until(profiles, lambda listed: _profiled(listed) >= handlers)
            with_class = handlers - {one.spec.handler for one in profiles if one.status.same_as}
            await wait_until(classes, lambda listed: _found(listed).keys() >= with_class)
    found = _found(classes)
    if not found:
        raise DemoRuntimesError(
            f"no class was made for the handlers {', '.join(sorted(handlers)) or '(none)'} "
            f"within {_FOUND_WITHIN_S:g} s; `moor runtimes` says what is wrong with them"
        )
    return tuple(found[handler] for handler in sorted(found))


def _found(classes: Iterable[RuntimeClass]) -> dict[str, FoundClass]:
    """Return the managed classes whose isolation is known, by handler."""
    return {
        one.handler: FoundClass(one.metadata.name, one.handler, isolation)
        for one in classes
        if one.metadata.labels.get(MANAGED_LABEL) == MANAGED
        and (isolation := one.metadata.labels.get(ISOLATION_LABEL))
    }


def _profiled(profiles: Iterable[RuntimeProfile]) -> set[str]:
    """Return the handlers whose isolation a profile says."""
    return {one.spec.handler for one in profiles if one.status.isolation}


async def _refusal(client: Client, weakest: FoundClass) -> str:
    """Create a pod below the floor, and return why it is refused."""
    try:
        await client.create(PODS, _pod(_REFUSED, runtimeClassName=weakest.name), _NAMESPACE)
    except ForbiddenError as error:
        return error.message
    raise DemoRuntimesError(f"a pod of class {weakest.name} was not refused by the floor")


async def _fitted(client: Client, isolation: str) -> Pod:
    """Create a pod that states a need, and return it once it is ready."""
    body = _pod(_FITTED)
    body["metadata"]["annotations"] = {NEEDS_ANNOTATION: f"isolation={isolation}"}
    created = await client.create(PODS, body, _NAMESPACE)
    if not created.spec.runtime_class_name:
        raise DemoRuntimesError(f"pod {_FITTED} got no class for isolation={isolation}")
    pods = Informer(client, PODS, namespace=_NAMESPACE, field_selector=f"metadata.name={_FITTED}")
    try:
        async with asyncio.timeout(_RUNNING_WITHIN_S):
            await wait_until(
                pods, lambda found: any(is_ready(one.status.conditions) for one in found)
            )
    except TimeoutError:
        raise DemoRuntimesError(
            f"pod {_FITTED} is not ready after {_RUNNING_WITHIN_S:g} s"
        ) from None
    return created


async def _delete(client: Client) -> None:
    """Delete what was created, as far as the demo came."""
    for resource, name in ((PODS, _REFUSED), (PODS, _FITTED), (RUNTIME_POLICIES, _POLICY)):
        with contextlib.suppress(NotFoundError):
            await client.delete(resource, name, _NAMESPACE)


def _floor(isolation: str) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "RuntimePolicy",
        "metadata": {"name": _POLICY},
        "spec": {"minimumIsolation": isolation},
    }


def _pod(name: str, **spec: str) -> Raw:
    container = {"name": "app", "image": BUSYBOX, "command": ["sleep", "3600"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0} | spec,
    }
