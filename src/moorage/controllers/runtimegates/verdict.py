"""Verdict on a pod that does not run yet: whether its handler is available, and its gate to go.

    gate   labels required   bound   handler on a usable node?
    yes    any               no      admission holds no such pod: release
    yes    yes               no      yes: release          no: held
    no     yes               no      yes: fine             no: unavailable, the scheduler waits
    no     no                no      yes: fine             no: unavailable, bypassed admission
    no     any               yes     of its node: fine     no: unavailable, delete the pod

Pure. What is not known (`moorage.runtimeclass.placing`) holds no pod.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from moorage.api.runtime_group import HANDLER_GATE, HELD_FOR_ANNOTATION
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.offer import Offer
from moorage.runtimeclass.placing import (
    has_gate,
    held_needs,
    labels_of_demanded,
    lacking_nodes,
    place,
    requires_label,
)
from moorage.runtimeclass.usable_nodes import is_own_label, required_terms, usable_nodes
from moorage.runtimeclass.validation import is_implicit

UNAVAILABLE = "HandlerUnavailable"
AVAILABLE = "HandlerAvailable"
CLASS_MISSING = "RuntimeClassMissing"
HANDLER_CHANGED = "HandlerChanged"
GATE_REMOVED = "SchedulingGateRemoved"
NOT_PLACED = "NotPlaced"
"""Reason: admission did not place the pod, so the scheduler may bind it where it cannot run."""

_SHOWN = 3
_NOT_HELD = (
    f"the scheduling gate {HANDLER_GATE} is removed: it is for pods with a RuntimeClass that wait "
    "for a node with its handler, and this pod is not placed by a handler"
)

Json = Mapping[str, Any]


class Verdict(msgspec.Struct, frozen=True):
    """Whether the handler is available, None where nothing is to be said; `releases` the gate.

    `labels` are those that a released pod must require beside those that it has: they follow from
    what its nodes are known for now, which was not known at its creation.
    """

    is_available: bool | None = None
    reason: str = ""
    message: str = ""
    releases: bool = False
    labels: tuple[str, ...] = ()


NOTHING = Verdict()


def judge(
    annotations: Mapping[str, str],
    spec: Json,
    index: ClassIndex,
    demanded: Iterable[str] = (),
    *,
    is_placeable: bool = True,
) -> Verdict:
    """Return the verdict on a pod, from what of its specification as JSON decides about its place.

    `demanded` are the features that the rest of it asks for. `is_placeable`: whether admission
    places pods in its namespace.
    """
    name = spec.get("runtimeClassName") or ""
    is_gated = has_gate(spec)
    if is_implicit(name) or not is_placeable:
        return Verdict(None, GATE_REMOVED, _NOT_HELD, releases=True) if is_gated else NOTHING
    offer = index.find(name)
    if offer is None:
        if not is_gated:
            return NOTHING
        message = f"RuntimeClass {name} does not exist; create it, or delete the pod"
        return Verdict(False, CLASS_MISSING, message)
    if spec.get("nodeName"):
        return _of_bound(spec["nodeName"], offer, index)
    placement = place(spec, offer, index, held_needs(annotations))
    if placement.is_held:
        if is_gated or _requires_own_labels(spec):
            return Verdict(False, UNAVAILABLE, placement.message)
        return Verdict(
            False,
            NOT_PLACED,
            f"{placement.message}. The pod was not placed by the webhook: the scheduler may "
            "bind it to a node without the handler; delete the pod, so that it is created again",
        )
    if not placement.nodes:
        message = f'it is not known which nodes have the handler "{offer.handler}"'
        return Verdict(True, AVAILABLE, message, releases=is_gated)
    nodes = placement.nodes & usable_nodes(spec, offer.selector, index.nodes, with_own_labels=True)
    if not nodes:
        return Verdict(False, HANDLER_CHANGED, _changed(spec, offer))
    message = f'a node has the handler "{offer.handler}" of RuntimeClass {name}'
    if not is_gated:
        return Verdict(True, AVAILABLE, message)
    more, _ = labels_of_demanded(nodes, offer, index, demanded)
    labels = dict.fromkeys(
        label for label in (*placement.labels, *more) if not requires_label(spec, label)
    )
    return Verdict(True, AVAILABLE, message, releases=True, labels=tuple(labels))


def _of_bound(node: str, offer: Offer, index: ClassIndex) -> Verdict:
    if not offer.is_placed_by_handler or not index.has_profiles:
        return NOTHING
    if index.nodes.named(node) & lacking_nodes(offer, index):
        message = (
            f'node {node}, to which the pod is bound, lacks the handler "{offer.handler}" of '
            f"RuntimeClass {offer.name}; install it there, or delete the pod, so that it is "
            "created again and placed by its handler"
        )
        return Verdict(False, UNAVAILABLE, message)
    message = f'node {node} has the handler "{offer.handler}" of RuntimeClass {offer.name}'
    return Verdict(True, AVAILABLE, message)


def _changed(spec: Json, offer: Offer) -> str:
    return (
        f'RuntimeClass {offer.name} has the handler "{offer.handler}", and nodes have it, but none '
        f"that has all that the pod requires ({', '.join(_own_labels(spec)[:_SHOWN])}), "
        "which cannot be changed; delete the pod, so that it is created again"
    )


def _requires_own_labels(spec: Json) -> bool:
    return bool(_own_labels(spec))


def _own_labels(spec: Json) -> list[str]:
    """Return the labels of handlers and features that a pod requires in some term."""
    keys = dict.fromkeys(filter(is_own_label, spec.get("nodeSelector") or {}))
    for term in required_terms(spec) or ():
        for requirement in term.get("matchExpressions") or ():
            if is_own_label(requirement.get("key", "")):
                keys[requirement["key"]] = None
    return list(keys)


# Verdicts on pods by what decides about them: pods of one template get the same, found once.
#
# Thousands may wait, and a change of a node is a question about each.

MOST = 4096
"""Verdicts that are kept: where nodes stay as they are, pods that come and go would add to them."""


class Verdicts:
    """Verdicts by the state of an index, each kept until that changes, or there are too many."""

    def __init__(
        self, index: ClassIndex, most: int = MOST, judge: Callable[..., Verdict] = judge
    ) -> None:
        self._index = index
        self._judge = judge
        self._most = most
        self._known: dict[bytes, Verdict] = {}
        self._version = -1

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._known)

    def on(
        self,
        annotations: Mapping[str, str],
        spec: Json,
        demanded: Iterable[str],
        *,
        is_placeable: bool,
    ) -> Verdict:
        """Return the verdict on a pod, as `judge` finds it."""
        if self._version != self._index.version:
            self._known.clear()
            self._version = self._index.version
        asked = (annotations.get(HELD_FOR_ANNOTATION), spec, tuple(demanded), is_placeable)
        # A specification may have a megabyte.
        key = hashlib.sha256(msgspec.json.encode(asked)).digest()
        verdict = self._known.get(key)
        if verdict is None:
            if len(self._known) >= self._most:
                self._known.clear()
            verdict = self._known[key] = self._judge(
                annotations, spec, self._index, asked[2], is_placeable=is_placeable
            )
        return verdict


# Pace at which changes of nodes are looked at: at once, unless one node changes all the time.
#
# An agent reports about its own node alone, so that one that changes its labels over and over slows
# down nothing but what is found by its own changes. Pure: time is given.

GATHER_S = 0.3
"""Changes within this time are looked at once."""
BURST = 20
"""Changes of a node that are looked at without delay: those of handlers that are probed."""
REFILL_S = 10.0
"""Time after which a node may have one more; also the longest delay."""
_MOST = 10_000
"""Nodes that are known."""


class _Allowance(msgspec.Struct):
    left: float
    at_s: float


class Pace:
    """Says when a change is to be looked at, by the node that it is of."""

    def __init__(self) -> None:
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()

    def delay_s(self, node: str, now_s: float) -> float:
        """Return the seconds after which a change of a node is looked at, and count it."""
        allowance = self._allowances.pop(node, None) or _Allowance(BURST, now_s)
        left = min(BURST, allowance.left + (now_s - allowance.at_s) / REFILL_S)
        self._allowances[node] = _Allowance(max(0.0, left - 1), now_s)
        if len(self._allowances) > _MOST:
            self._allowances.popitem(last=False)
        return GATHER_S if left >= 1 else max(GATHER_S, REFILL_S * (1 - left))
