"""RuntimeClasses for the handlers that nodes were found to have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import intern

from moorage.api.clock import Clock
from moorage.api.conditions import is_true
from moorage.api.meta import Condition, ObjectMeta
from moorage.api.runtime_group import (
    WORKING,
    RuntimeClass,
    RuntimeProfile,
    RuntimeProfileSpec,
    RuntimeProfileStatus,
    profile_name,
)
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop
from moorage.controllers.objects import Node
from moorage.runtimeclass.isolation import LEVELS
from moorage.runtimes.probing.default_classes import complete_class, create_classes
from moorage.wire.client.informer import Informer, latest
from moorage.wire.client.resources import RUNTIME_PROFILES
from moorage.wire.client.rest import Client

# Profiles of all nodes, as the controllers of runtimes share them: one watch, few fields kept.
#
# A cluster of 5,000 nodes has 50,000 profiles of a hundred features each. Handlers of the informer
# see a profile whole; what stays of it is its node, handler, isolation, whether it works, and which
# handler it is under a second name.

PROFILE_HANDLER, PROFILE_NODE = "handler", "node"
"""Indexes of the informer."""
_AT_ONCE = 50
"""Profiles of a page."""


def profile_informer(client: Client, clock: Clock) -> Informer[RuntimeProfile]:
    """Return an informer of all profiles, indexed by handler and by node."""
    return Informer(
        client,
        RUNTIME_PROFILES,
        clock=clock,
        keep=_kept,
        page_size=_AT_ONCE,
        indexes={
            PROFILE_HANDLER: lambda profile: [profile.spec.handler],
            PROFILE_NODE: lambda profile: [profile.spec.node_name],
        },
    )


_conditions = {status: (Condition(type=WORKING, status=status),) for status in ("True", "False")}


def _kept(profile: RuntimeProfile) -> RuntimeProfile:
    meta, spec, status = profile.metadata, profile.spec, profile.status
    working = next((one.status for one in status.conditions if one.type == WORKING), "")
    return RuntimeProfile(
        metadata=ObjectMeta(name=meta.name, uid=meta.uid, resource_version=meta.resource_version),
        spec=RuntimeProfileSpec(node_name=intern(spec.node_name), handler=intern(spec.handler)),
        status=RuntimeProfileStatus(
            isolation=intern(status.isolation),
            same_as=intern(status.same_as),
            conditions=_conditions.get(working, ()),
        ),
    )


# The controller of RuntimeClasses: a class for each handler that a profile says works.
#
# Keys are handlers. A handler that is another one under a second name on each of its nodes
# (`runsc`, where there is `gvisor`) gets no class: one is enough for a runtime. The isolation
# label of a managed class is the weakest level that its nodes have, and is left out while one is
# unknown.
#
# Nodes write their profiles themselves, so what a profile says counts only where its Node reports
# the handler too (or, as before Kubernetes 1.30, no handlers at all), and a cluster gets at most
# `MOST_CLASSES` classes by itself.


class RuntimeClassController:
    """Creates and completes classes for the handlers in RuntimeProfiles."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        profiles: Informer[RuntimeProfile],
        clock: Clock,
    ) -> None:
        """`profiles` is one of `profile_informer`, which its caller runs."""
        self._client = client
        self._profiles = profiles
        self._classes, self._nodes = informers.runtime_classes, informers.nodes
        self.run = Loop(
            "runtime classes",
            self._reconcile,
            [
                (self._profiles, self._profile_changed),
                (self._classes, self._class_changed),
                (self._nodes, self._node_changed),
            ],
            clock,
        ).run

    def _profile_changed(
        self, before: RuntimeProfile | None, after: RuntimeProfile | None
    ) -> Iterator[str]:
        yield latest(before, after).spec.handler

    def _class_changed(
        self, before: RuntimeClass | None, after: RuntimeClass | None
    ) -> Iterator[str]:
        del before
        if after is not None:
            yield after.handler

    def _node_changed(self, before: Node | None, after: Node | None) -> Iterator[str]:
        if before and after and _handlers(before) == _handlers(after):
            return
        node = latest(before, after).metadata.name
        for profile in self._profiles.by_index(PROFILE_NODE, node):
            yield profile.spec.handler

    def _is_reported(self, profile: RuntimeProfile) -> bool:
        """Return whether it is the profile of its handler, NODE.HANDLER, and its node agrees."""
        spec = profile.spec
        if profile.metadata.name != profile_name(spec.node_name, spec.handler):
            return False
        node = self._nodes.get(profile.spec.node_name)
        if node is None:
            return False
        reported = _handlers(node)
        return not reported or profile.spec.handler in reported

    def _is_same_as_another(self, profile: RuntimeProfile) -> bool:
        """Return whether it is of a second name for another handler that its node reports."""
        same_as = profile.status.same_as
        reported = _handlers(self._nodes.get(profile.spec.node_name))
        return same_as not in ("", profile.spec.handler) and (
            same_as in reported
            or any(
                other.spec.handler == same_as
                for other in self._profiles.by_index(PROFILE_NODE, profile.spec.node_name)
            )
        )

    async def _reconcile(self, handler: str) -> float | None:
        working = [
            profile
            for profile in self._profiles.by_index(PROFILE_HANDLER, handler)
            if is_true(profile.status.conditions, WORKING) and self._is_reported(profile)
        ]
        if not working:
            return None
        isolation = weakest(profile.status.isolation for profile in working)
        found = self._classes.get(handler)
        if found is None:
            if all(map(self._is_same_as_another, working)):
                return None
            await create_classes(self._client, {handler: isolation})
        elif found.handler == handler:
            await complete_class(self._client, found, isolation)
        return None


def _handlers(node: Node | None) -> frozenset[str]:
    if node is None:
        return frozenset()
    return frozenset(handler.name for handler in node.status.runtime_handlers if handler.name)


def weakest(isolations: Iterable[str]) -> str:
    """Return the weakest of isolation levels; empty if one is unknown, or if there are none."""
    levels = [LEVELS.get(isolation) for isolation in isolations]
    if not levels or None in levels:
        return ""
    return min(level for level in levels if level is not None).label
