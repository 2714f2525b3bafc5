"""Requirements of a pod on its runtime, and whether a class meets them.

What a pod asks for, what is stated that it needs, what its namespace demands, how much room it
takes and which nodes it accepts: `nodes_for` intersects the nodes of a class by each of them, and
`lacks` says in words what stands against a class. Room is what a node can allocate in all, not what
is free; affinity and taints are the scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from moorage.api.containers import ResourceRequirements
from moorage.api.meta import Object
from moorage.api.pods import PodSpec
from moorage.api.quantity import Family, Quantity
from moorage.api.runtime_group import feature_label
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import Demand
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.needs import NO_NEEDS, Needs
from moorage.runtimeclass.node_sets import NodeSet
from moorage.runtimeclass.offer import Offer, Support
from moorage.runtimeclass.overhead import pod_requests_without_overhead
from moorage.runtimeclass.policies import EffectivePolicy, shown_policies


class _SizedContainer(Object, frozen=True):
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


class _SizedSpec(Object, frozen=True):
    """What requests are summed from: reading all of a specification takes five times as long."""

    containers: tuple[_SizedContainer, ...] = ()
    init_containers: tuple[_SizedContainer, ...] = ()
    resources: ResourceRequirements | None = None


class Requirements(msgspec.Struct, frozen=True):
    """What the class of a pod must offer. `nodes` are those that the pod accepts."""

    nodes: NodeSet
    demands: tuple[Demand, ...] = ()
    needs: Needs = NO_NEEDS
    policy: EffectivePolicy = EffectivePolicy()
    requests: Mapping[str, int] = {}


def accepted_nodes(
    spec: Mapping[str, Any], index: ClassIndex, offer: Offer | None = None
) -> NodeSet:
    """Return the nodes that a pod's `nodeSelector` and `nodeName` leave.

    What the selector has from the pod's present class is ignored: another class has its own.
    """
    selector = (spec.get("nodeSelector") or {}).items()
    if offer is not None and offer.selector:
        selector = selector - offer.selector.items()
    nodes = index.nodes.labelled(selector)
    name = spec.get("nodeName")
    return nodes & index.nodes.named(name) if name else nodes


def requests_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return a pod's requests without overhead, in billionths by resource.

    Raises msgspec.ValidationError, ValueError for a specification that the schema would refuse.
    """
    typed = cast(PodSpec, msgspec.convert(spec, _SizedSpec))
    return {
        name: amount.nano for name, amount in pod_requests_without_overhead(typed).items() if amount
    }


def is_permitted(offer: Offer, policy: EffectivePolicy) -> bool:
    """Return whether allow-lists and floor admit a class. Unknown isolation is below any floor."""
    if policy.allowed is not None and offer.name not in policy.allowed.classes:
        return False
    floor = policy.floor
    return floor is None or _reaches(offer, floor.isolation)


def _reaches(offer: Offer, level: Isolation) -> bool:
    return offer.isolation is not None and offer.isolation >= level


def shortlisted(requirements: Requirements, index: ClassIndex) -> Iterator[Offer]:
    """Yield the classes that may meet requirements on some node, the cheapest first."""
    shortlist = index.shortlist()
    needs, policy = requirements.needs, requirements.policy
    classes = shortlist.everything
    if policy.allowed is not None:
        classes &= shortlist.named(policy.allowed.classes)
    if policy.floor is not None:
        classes &= shortlist.reaching(policy.floor.isolation)
    if needs.isolation is not None:
        classes &= shortlist.reaching(needs.isolation)
    for feature in needs.features:
        classes &= shortlist.having(feature)
    for demand in requirements.demands:
        classes &= ~shortlist.without(demand.feature)
    return shortlist.offers(classes)


def nodes_for(offer: Offer, requirements: Requirements, index: ClassIndex) -> NodeSet:
    """Return the nodes on which a class meets all requirements; none if it is not permitted.

    A need must have been found supported there, a demand not have been found unsupported. Hot path:
    it runs for each class (bench/fitting.py).
    """
    needs = requirements.needs
    if not is_permitted(offer, requirements.policy):
        return 0
    if needs.isolation is not None and not _reaches(offer, needs.isolation):
        return 0
    nodes = offer.nodes & requirements.nodes
    for feature in needs.features:
        nodes &= offer.supported.get(feature, 0)
    if not nodes:
        return 0
    unsupported = offer.unsupported
    for demand in requirements.demands:
        if lacking := unsupported.get(demand.feature):
            nodes &= ~lacking
            if not nodes:
                return 0
    overhead = offer.overhead
    for resource, amount in requirements.requests.items():
        if not nodes:
            break
        nodes &= index.nodes.with_room(resource, amount + overhead.get(resource, 0))
    return nodes


def steering_labels(offer: Offer, requirements: Requirements) -> dict[str, str]:
    """Return the node labels that keep a pod off nodes which lack what it requires of the class.

    Empty where all nodes that class and pod share have it.
    """
    among = requirements.nodes
    features = {
        *(feature for feature in requirements.needs.features
          if offer.support(feature, among) is Support.SOMEWHERE),
        *(demand.feature for demand in requirements.demands
          if offer.unsupported.get(demand.feature, 0) & offer.nodes & among),
    }  # fmt: skip
    return {feature_label(offer.handler, feature): "true" for feature in sorted(features)}


def lacks(offer: Offer, requirements: Requirements, index: ClassIndex) -> list[str]:
    """Return the objections to a class, in words; empty if it meets all requirements."""
    found = [*_policy_lacks(offer, requirements.policy), *_feature_lacks(offer, requirements)]
    shared = offer.nodes & requirements.nodes
    if not offer.nodes:
        found.append(f'no node has its handler "{offer.handler}"')
    elif not shared:
        found.append("no node that the pod's nodeSelector or nodeName accepts has its handler")
    elif not found and not nodes_for(offer, requirements, index):
        found.append(_no_room(offer, requirements, index))
    elif not found and (labels := steering_labels(offer, requirements)):
        nodes = nodes_for(offer, requirements, index)
        if not nodes & index.nodes.labelled(labels.items()):
            found.append(
                f"only some of its nodes have what is needed, and none of these has the label "
                f"{', '.join(f'{key}={value}' for key, value in labels.items())}"
            )
    return found


def _policy_lacks(offer: Offer, policy: EffectivePolicy) -> Iterator[str]:
    if policy.allowed is not None and offer.name not in policy.allowed.classes:
        yield f"{shown_policies(policy.allowed.policies)} do not allow it"
    floor = policy.floor
    if floor is not None and not _reaches(offer, floor.isolation):
        yield (
            f"its isolation is {_level(offer)}, below the floor {floor.isolation.label} of "
            f"{shown_policies(floor.policies)}"
        )


def _feature_lacks(offer: Offer, requirements: Requirements) -> Iterator[str]:
    needs = requirements.needs
    if needs.isolation is not None and not _reaches(offer, needs.isolation):
        yield f"its isolation is {_level(offer)}, not {needs.isolation.label} or stronger"
    nodes = requirements.nodes
    if not offer.nodes & nodes:
        return
    for feature in sorted(needs.features):
        match offer.support(feature, nodes):
            case Support.NOWHERE:
                yield f"it lacks {feature}"
            case Support.UNKNOWN:
                yield f"whether it has {feature} is unknown"
    for feature, fields in fields_by_feature(requirements.demands).items():
        if offer.support(feature, nodes) is Support.NOWHERE:
            yield f"it lacks {feature}, which {fields[0]} asks for"


def fields_by_feature(demands: Iterable[Demand]) -> dict[str, list[str]]:
    """Return the fields that ask for each feature."""
    fields: dict[str, list[str]] = {}
    for demand in demands:
        fields.setdefault(demand.feature, []).append(demand.field)
    return fields


def _no_room(offer: Offer, requirements: Requirements, index: ClassIndex) -> str:
    """Return why no node is left although each feature is there: room, or no node has them all."""
    nodes = offer.nodes & requirements.nodes
    amounts = {
        name: amount + offer.overhead.get(name, 0) for name, amount in requirements.requests.items()
    }
    with_room = nodes
    for name, amount in amounts.items():
        with_room &= index.nodes.with_room(name, amount)
    if with_room:
        return "no single node has all that is needed"
    shown = ", ".join(f"{name} {_text(name, amount)}" for name, amount in sorted(amounts.items()))
    return f"no node has room for {shown}, overhead included"


def _text(resource: str, amount: int) -> str:
    is_bytes = resource == "memory" or resource.startswith(("hugepages-", "ephemeral-"))
    return str(Quantity(amount, Family.BINARY if is_bytes else Family.DECIMAL))


def _level(offer: Offer) -> str:
    return "unknown" if offer.isolation is None else offer.isolation.label
