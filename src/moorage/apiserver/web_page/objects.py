"""Objects as the page reads them: the few fields that it shows, so that many of them cost little.

Users and nodes may write objects of a megabyte, so that each is made small as it is read: texts
have a limit, and so have lists.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec

from moorage.api.meta import Condition, Object, ObjectMeta
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.runtime_group import (
    ISOLATION_LABEL,
    MANAGED_LABEL,
    MEASUREMENT_LABEL,
    PROBE_LABEL,
    WORKING,
    ProfileFeature,
    RuntimeClass,
    RuntimeProfile,
)
from moorage.runtimeclass.features import FEATURES
from moorage.runtimeclass.validation import is_implicit
from moorage.wire.client.resources import EVENTS, NODES, PODS, read_as

MOST_LETTERS = 200
"""Limit on the letters of a text."""
_MOST_MESSAGE_LETTERS = 1024
"""Limit on the letters of an event's message. Source: events/v1 `note`."""
_MOST_HANDLERS = 100
"""Limit on the handlers of a node."""
_LABELS = (ISOLATION_LABEL, MANAGED_LABEL, PROBE_LABEL, MEASUREMENT_LABEL)


class NamedMeta(Object, frozen=True):
    name: str = ""
    namespace: str = ""


class PodRowSpec(Object, frozen=True):
    node_name: str = ""
    runtime_class_name: str | None = None


class PodRowStatus(Object, frozen=True):
    phase: str = ""
    reason: str = ""


class PodRow(Object, frozen=True):
    """A pod in a list."""

    metadata: NamedMeta = NamedMeta()
    spec: PodRowSpec = PodRowSpec()
    status: PodRowStatus = PodRowStatus()


class NodeRowStatus(Object, frozen=True):
    runtime_handlers: tuple[NodeRuntimeHandler, ...] = ()


class NodeRow(Object, frozen=True):
    """A node: its name, and the handlers that its engine lists."""

    metadata: NamedMeta = NamedMeta()
    status: NodeRowStatus = NodeRowStatus()


class EventRow(Object, frozen=True):
    """An event about a pod."""

    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def seen_at(self) -> str:
        """Return when it was last seen, empty if that is not said."""
        return self.last_timestamp or self.event_time or ""


POD_ROWS = read_as(PODS, PodRow)
NODE_ROWS = read_as(NODES, NodeRow)
EVENT_ROWS = read_as(EVENTS, EventRow)


def shortened(text: str, most: int = MOST_LETTERS) -> str:
    """Return a text of a cell: nodes and users may write any number of letters."""
    return text if len(text) <= most else f"{text[:most]}…"


def small_node(node: NodeRow) -> NodeRow:
    """Return the fields of a node that the page shows."""
    handlers = tuple(
        NodeRuntimeHandler(name=shortened(handler.name))
        for handler in node.status.runtime_handlers[:_MOST_HANDLERS]
    )
    return NodeRow(metadata=node.metadata, status=NodeRowStatus(runtime_handlers=handlers))


def small_class(runtime_class: RuntimeClass) -> RuntimeClass:
    """Return the fields of a class that the page shows."""
    meta = runtime_class.metadata
    labels = {key: shortened(meta.labels[key]) for key in _LABELS if key in meta.labels}
    return msgspec.structs.replace(
        runtime_class, metadata=ObjectMeta(name=meta.name, labels=labels), scheduling=None
    )


def small_event(event: EventRow) -> EventRow:
    """Return the fields of an event that the page shows."""
    return EventRow(
        type=shortened(event.type),
        reason=shortened(event.reason),
        message=shortened(event.message, _MOST_MESSAGE_LETTERS),
        last_timestamp=shortened(event.last_timestamp or "") or None,
        event_time=shortened(event.event_time or "") or None,
    )


class SmallProfiles:
    """Makes profiles small: a limit for each node, and findings that are alike are kept once."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._findings: dict[tuple[ProfileFeature, ...], tuple[ProfileFeature, ...]] = {}

    def small(self, profile: RuntimeProfile) -> RuntimeProfile | None:
        """Return the fields of a profile that the page shows, None for one that is left out."""
        spec, status = profile.spec, profile.status
        count = self._counts[spec.node_name] = self._counts.get(spec.node_name, 0) + 1
        if count > _MOST_HANDLERS:
            return None
        findings = tuple(
            ProfileFeature(each.name, each.state, shortened(each.message))
            for each in {each.name: each for each in status.features}.values()
            if each.name in FEATURES
        )
        program = status.program
        if program is not None:
            program = msgspec.structs.replace(
                program, name=shortened(program.name), version=shortened(program.version),
                path="", digest="",
            )  # fmt: skip
        return RuntimeProfile(
            metadata=ObjectMeta(name=profile.metadata.name),
            spec=spec,
            status=msgspec.structs.replace(
                status,
                program=program,
                engine="",
                kernel="",
                host_kernel="",
                probed_at=None,
                isolation=shortened(status.isolation),
                features=self._findings.setdefault(findings, findings),
                conditions=tuple(_small_condition(each) for each in status.conditions
                                 if each.type == WORKING)[:1],
            ),
        )  # fmt: skip


def _small_condition(condition: Condition) -> Condition:
    return Condition(
        type=condition.type,
        status=shortened(condition.status),
        reason=shortened(condition.reason),
        message=shortened(condition.message),
    )


# Tally of pods: how many each class has by phase, and the first pods of one class.
#
# Of a hundred thousand pods a page shows a few numbers, so that none is kept.

NO_CLASS = ""
"""Name under which pods without a class are counted."""
PHASES = ("Pending", "Running", "Succeeded", "Failed")
MOST_PODS = 500
"""Limit on the pods that one page lists."""


class PodTally:
    """Counts pods as they are read. Of the class `listed` it keeps the first `MOST_PODS`."""

    def __init__(self, listed: str | None = None) -> None:
        self._listed = listed
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._pods: list[PodRow] = []

    def add(self, pod: PodRow) -> None:
        """Count a pod."""
        name = class_of(pod)
        phase = pod.status.phase or "Pending"
        # A node may write any words as phases of its pods, each another one.
        self._counts[name][phase if phase in PHASES else "Unknown"] += 1
        if name != self._listed:
            return
        status = PodRowStatus(shortened(pod.status.phase), shortened(pod.status.reason))
        self._pods.append(PodRow(pod.metadata, pod.spec, status))
        if len(self._pods) >= 2 * MOST_PODS:
            self._pods = list(self.first())

    def first(self) -> tuple[PodRow, ...]:
        """Return the pods of the listed class by namespace and name, at most `MOST_PODS`."""
        ordered = sorted(self._pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
        return tuple(ordered[:MOST_PODS])

    def counts(self) -> Mapping[str, Counter[str]]:
        """Return how many pods each class has, by phase."""
        return self._counts


def class_of(pod: PodRow) -> str:
    """Return the name of a pod's class, `NO_CLASS` for the node's default."""
    name = pod.spec.runtime_class_name
    return NO_CLASS if name is None or is_implicit(name) else name
