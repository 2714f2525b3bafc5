"""Placing by handler: which node labels a pod of a class must require, and whether it is held.

    some usable node has the handler ──▶ required node affinity on the labels of handler and needs
    all usable nodes are known to lack it ──▶ the same, and a scheduling gate until one gains it
    not known, or no usable node ──▶ the pod is left alone

Not known is not the same as none: without any RuntimeProfile, and where a node of which nothing is
reported might have the handler, nothing is required. A pod that may use no node is left alone, so
that an autoscaler sees it. Pure: the webhook and the controller of gates both decide with this.
Source: KEP-3521 (scheduling gates), KEP-3838 (gated pods may only become choosier about nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.api.pods import MIRROR_ANNOTATION
from moorage.api.runtime_group import HANDLER_GATE, HELD_FOR_ANNOTATION, feature_label
from moorage.api.runtime_group import handler_label as label_of
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.features import is_labelled
from moorage.runtimeclass.needs import NO_NEEDS, Needs, NeedsError, parse_needs
from moorage.runtimeclass.node_sets import NodeSet
from moorage.runtimeclass.offer import Offer
from moorage.runtimeclass.usable_nodes import REQUIRED, required_terms, usable_nodes

TRUE = "true"
_SYSTEM_NAMESPACE = "kube-system"
_MOST_ADDED = 1000
"""Expressions that are added to affinity; beyond it `nodeSelector` gets the labels, which is
equivalent, so that a pod near the API's limit of size is not pushed over it."""

Json = Mapping[str, Any]


class Placement(msgspec.Struct, frozen=True):
    """Which labels a pod must require, all with the value `true`; none where it is left alone.

    `nodes` are those that have them; `is_held`: none does, and `message` says what is waited for.
    """

    labels: tuple[str, ...] = ()
    nodes: NodeSet = 0
    is_held: bool = False
    message: str = ""


LEFT_ALONE = Placement()


def is_placeable(namespace: str, metadata: Json, spec: Json) -> bool:
    """Return whether a pod is placed at all: not one of kube-system, a mirror, or on a node."""
    return (
        namespace != _SYSTEM_NAMESPACE
        and not spec.get("nodeName")
        and MIRROR_ANNOTATION not in (metadata.get("annotations") or {})
    )


def place(
    spec: Json, offer: Offer, index: ClassIndex, needs: Needs = NO_NEEDS,
    demanded: Iterable[str] = (),
) -> Placement:  # fmt: skip
    """Return how a pod of a class is placed.

    `needs` are features that nodes must have been found to support; of `demanded`, the features
    that its fields ask for, those count that only some of the nodes were found to lack.
    """
    if not offer.is_placed_by_handler or not index.has_profiles:
        return LEFT_ALONE
    usable = usable_nodes(spec, offer.selector, index.nodes)
    if not usable:
        return LEFT_ALONE
    handler = offer.handler
    label = label_of(handler)
    nodes = usable & index.nodes.labelled(((label, TRUE),))
    if not nodes:
        if usable & ~lacking_nodes(offer, index):
            return LEFT_ALONE
        return Placement((label,), is_held=True, message=_missing(offer))
    labels = [label]
    for feature in filter(is_labelled, sorted(needs.features)):
        key = feature_label(handler, feature)
        if found := nodes & index.nodes.labelled(((key, TRUE),)):
            labels.append(key)
            nodes = found
        elif not nodes & ~offer.unsupported.get(feature, 0):
            return Placement((label,), is_held=True, message=_lacking(offer, feature))
    more, nodes = labels_of_demanded(nodes, offer, index, demanded)
    return Placement((*labels, *(label for label in more if label not in labels)), nodes)


def labels_of_demanded(
    nodes: NodeSet, offer: Offer, index: ClassIndex, demanded: Iterable[str]
) -> tuple[tuple[str, ...], NodeSet]:
    """Return the labels of demanded features that only some of the nodes lack, and whose have all.

    A feature that none of the nodes left has is not required: the pod may do without.
    """
    labels = []
    for feature in sorted(set(filter(is_labelled, demanded))):
        if not nodes & offer.unsupported.get(feature, 0):
            continue
        key = feature_label(offer.handler, feature)
        if found := nodes & index.nodes.labelled(((key, TRUE),)):
            labels.append(key)
            nodes = found
    return tuple(labels), nodes


def lacking_nodes(offer: Offer, index: ClassIndex) -> NodeSet:
    """Return the nodes that are known to lack the handler of a class.

    Those are nodes of which an agent reports handlers, or whose engine lists others.
    """
    reported = index.reporting_nodes() | ~index.nodes.with_handler(offer.handler)
    return (
        reported & index.nodes.existing & ~index.nodes.labelled(((label_of(offer.handler), TRUE),))
    )


def _missing(offer: Offer) -> str:
    return (
        f'waiting for a node with the handler "{offer.handler}" of RuntimeClass {offer.name}: no '
        "node that the pod may use has it; install it on one, or use another class"
    )


def _lacking(offer: Offer, feature: str) -> str:
    return (
        f"waiting for a node on which RuntimeClass {offer.name} has {feature}, which the pod "
        f'needs: no node with the handler "{offer.handler}" that the pod may use has it'
    )


def require_labels(spec: dict[str, Any], labels: Iterable[str]) -> None:
    """Add labels to the required node affinity of a pod, in place of the maps that change.

    Each term gets them, since terms are ORed; an empty term stays, because it matches no node.
    What a term or `nodeSelector` requires already is not added. Idempotent.
    """
    selector = spec.get("nodeSelector") or {}
    wanted = [label for label in labels if selector.get(label) != TRUE]
    if not wanted:
        return
    terms = required_terms(spec)
    if terms is not None and len(terms) * len(wanted) > _MOST_ADDED:
        spec["nodeSelector"] = {**selector, **dict.fromkeys(wanted, TRUE)}
        return
    added = [{"key": label, "operator": "In", "values": [TRUE]} for label in wanted]
    if terms is None:
        terms = [{"matchExpressions": added}]
    else:
        terms = [_with(term, added) for term in terms]
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    required = {**(node_affinity.get(REQUIRED) or {}), "nodeSelectorTerms": terms}
    spec["affinity"] = {**affinity, "nodeAffinity": {**node_affinity, REQUIRED: required}}


def requires_label(spec: Json, label: str) -> bool:
    """Return whether no node without a label, with the value `true`, can take a pod.

    Terms are ORed, so each of them must require it; an empty one matches no node.
    """
    if (spec.get("nodeSelector") or {}).get(label) == TRUE:
        return True
    wanted = {"key": label, "operator": "In", "values": [TRUE]}
    terms = required_terms(spec)
    return bool(terms) and all(
        wanted in (term.get("matchExpressions") or ())
        or not (term.get("matchExpressions") or term.get("matchFields"))
        for term in terms or ()
    )


def labels_of_needs(handler: str, needs: Needs) -> tuple[str, ...]:
    """Return the labels of a handler and of all needed features that have labels."""
    features = filter(is_labelled, sorted(needs.features))
    return (label_of(handler), *(feature_label(handler, feature) for feature in features))


def _with(term: Json, added: list[dict[str, Any]]) -> Json:
    present = term.get("matchExpressions") or []
    if not present and not term.get("matchFields"):
        return term
    missing = [one for one in added if one not in present]
    return {**term, "matchExpressions": [*present, *missing]} if missing else term


def hold(metadata: dict[str, Any], spec: dict[str, Any], needs: Needs) -> None:
    """Add the scheduling gate, beside those of others, and what the pod is held for. Idempotent.

    What a pod brings of the annotation is replaced: needs that a policy states must not be lost.
    """
    gates = spec.get("schedulingGates") or []
    if not has_gate(spec):
        spec["schedulingGates"] = [*gates, {"name": HANDLER_GATE}]
    state_held_for(metadata, ", ".join(Needs(features=needs.features).words))


def state_held_for(metadata: dict[str, Any], held_for: str) -> None:
    """Set the annotation of what a pod is held for, or remove it where that is nothing."""
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(HELD_FOR_ANNOTATION, None)
    if held_for:
        annotations[HELD_FOR_ANNOTATION] = held_for
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)


def has_gate(spec: Json) -> bool:
    """Return whether a pod has the scheduling gate of its handler."""
    return any(gate.get("name") == HANDLER_GATE for gate in spec.get("schedulingGates") or ())


def held_needs(annotations: Mapping[str, str]) -> Needs:
    """Return the features that a pod was held for. What cannot be understood counts as none."""
    try:
        return parse_needs(annotations.get(HELD_FOR_ANNOTATION, ""))
    except NeedsError:
        return NO_NEEDS
