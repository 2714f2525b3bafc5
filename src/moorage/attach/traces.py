"""Traces of an attachment on objects of others, and the patches that remove them. Pure.

The parts write labels and conditions on nodes, annotations, conditions and scheduling gates on
pods, annotations on workloads, and RuntimeClasses. What others wrote stays: users' needs, labels
against a default class and checks of classes; what the node agent of `moor up` keeps for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from moorage.api.claims.classes import NODE_LABEL
from moorage.api.clock import Clock
from moorage.api.meta import Raw
from moorage.api.runtime_group import (
    API_VERSION,
    CHECK_ANNOTATION,
    DEFAULT_CLASS_LABEL,
    ENFORCE_LABEL,
    ENFORCED_FOR_ANNOTATION,
    GROUP,
    MANAGED,
    MANAGED_LABEL,
    NEEDS_ANNOTATION,
    PROBE_LABEL,
)
from moorage.api.runtime_installations import (
    FINALIZER,
    REMOVE,
    REMOVING,
    NodeInstallation,
    RuntimeInstallation,
)
from moorage.attach.detach_options import DetachOptions, Leftover
from moorage.attach.errors import AttachError
from moorage.attach.manifests.identity import Obj
from moorage.attach.manifests.runtime_agent import DATA_DIRECTORY
from moorage.attach.served_objects import ServedObjects, name_of
from moorage.runtimeclass.start_phases import CONDITION as START_PHASES
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import RUNTIME_INSTALLATIONS
from moorage.wire.client.rest import Client, PatchType

# Undoing of RuntimeInstallations: nodes lose what was installed, or keep it if that is asked for.
#
# Agents undo an installation when its object is deleted, while they and the controllers still run.
# What is to stay on the nodes keeps its object until no agent runs any more: one that sees it gone
# undoes it.

_INSTALLATION = (API_VERSION, "RuntimeInstallation")


async def installations_of(served: ServedObjects) -> tuple[Obj, ...]:
    """Return the RuntimeInstallations. Raises StatusError, UnreachableError."""
    return tuple([obj async for obj in served.list(*_INSTALLATION)])


async def undo(
    client: Client, served: ServedObjects, clock: Clock, options: DetachOptions
) -> list[Leftover]:
    """Delete all RuntimeInstallations, and wait until no node has what they installed.

    Returns what stays by their policy. Raises AttachError, with what each node says, after a while.
    """
    found = await installations_of(served)
    if not found:
        return []
    for obj in found:
        if await served.delete(obj):
            options.said(f"{name_of(obj)} removed")
    informer, reports = Informer(client, RUNTIME_INSTALLATIONS, clock=clock), Reports(options)
    informer.add_handler(reports.changed)
    try:
        async with asyncio.timeout(options.timeout_s):
            await wait_until(informer, lambda present: len(present) == 0)
    except TimeoutError as error:
        raise AttachError(_not_undone(informer, options.timeout_s)) from error
    left = []
    for obj in found:
        policy = obj["spec"].get("removalPolicy", REMOVE)
        if policy != REMOVE:
            left.append(_leftover(obj, f"its removalPolicy is {policy}; {_by_hand(obj)}"))
        elif nodes := reports.left.get(obj["metadata"]["name"]):
            why = f"nodes {', '.join(nodes)} were not ready to undo it; {_by_hand(obj)}"
            left.append(_leftover(obj, why))
    return left


async def leave(served: ServedObjects, options: DetachOptions) -> list[Leftover]:
    """Delete all RuntimeInstallations once no agent runs, so that nodes keep what they have.

    Returns what that is.
    """
    found = await installations_of(served)
    for obj in found:
        finalizers = obj["metadata"].get("finalizers") or []
        if FINALIZER in finalizers:
            kept = [name for name in finalizers if name != FINALIZER]
            await served.patch(obj, {"metadata": {"finalizers": kept}}, PatchType.MERGE)
        if await served.delete(obj):
            options.said(f"{name_of(obj)} removed")
    again = "agents that `moor attach` starts again remove it"
    return [_leftover(obj, f"as you asked; {again}, or {_by_hand(obj)}") for obj in found]


class Reports:
    """Says what nodes report about what they undo, each line once.

    `left` has the nodes that had not undone an installation when its object went: the controllers
    do not wait for ever for one that is not ready.
    """

    def __init__(self, options: DetachOptions) -> None:
        self._said = options.said
        self._known: Mapping[tuple[str, str], str] = {}
        self.left: dict[str, tuple[str, ...]] = {}

    def changed(
        self, before: RuntimeInstallation | None, after: RuntimeInstallation | None
    ) -> None:
        if after is None:
            if before is not None:
                nodes = tuple(node.name for node in before.status.nodes)
                self.left[before.metadata.name] = nodes
            return
        name = after.metadata.name
        for node in after.status.nodes:
            if node.message and self._known.get((name, node.name)) != node.message:
                self._known = {**self._known, (name, node.name): node.message}
                self._said(f"RuntimeInstallation {name}: {_state(node)}")


def _leftover(obj: Obj, why: str) -> Leftover:
    name = obj["metadata"]["name"]
    return Leftover(f"what RuntimeInstallation {name} installed on nodes", why)


def _by_hand(obj: Obj) -> str:
    handler = obj["spec"].get("handler", "")
    return f"on each node: moor runtime remove {handler} --cri ENDPOINT --data-dir {DATA_DIRECTORY}"


def _not_undone(installations: Iterable[RuntimeInstallation], timeout_s: float) -> str:
    return "\n".join(
        [
            f"nodes have not undone their installations after {timeout_s:g} s; run it again to "
            "wait, or leave what is installed with --leave-runtimes",
            *_states(installations),
        ]
    )


def _states(installations: Iterable[RuntimeInstallation]) -> Iterator[str]:
    for installation in installations:
        nodes: Sequence[Any] = installation.status.nodes
        for node in nodes:
            yield f"  {installation.metadata.name}: {_state(node)}"


def _state(node: NodeInstallation) -> str:
    state = "is undoing it" if node.phase == REMOVING else f"is {node.phase or 'silent'}"
    return f"node {node.name} {state}" + (f": {node.message}" if node.message else "")


_OTHERS = frozenset(
    (
        NEEDS_ANNOTATION,
        DEFAULT_CLASS_LABEL,
        CHECK_ANNOTATION,
        ENFORCE_LABEL,
        NODE_LABEL,
        START_PHASES,
    )
)
"""Labels, annotations and conditions of the group that are not of an attachment's parts."""
_PODS_FIELDS = ("annotations",)
_FIELDS = ("labels", "annotations")


def is_ours(key: str) -> bool:
    """Return whether a label, annotation, condition, gate or finalizer is of an attachment."""
    prefix, slash, _ = key.partition("/")
    is_group = bool(slash) and (prefix == GROUP or prefix.endswith(f".{GROUP}"))
    return is_group and key not in _OTHERS


def metadata_patch(obj: Obj) -> Raw | None:
    """Return the merge patch that removes our labels and annotations; None without any."""
    metadata = obj["metadata"]
    # A pod's labels are its owner's.
    fields = _PODS_FIELDS if obj["kind"] == "Pod" else _FIELDS
    patch = {field: nulls for field in fields if (nulls := _nulls(metadata.get(field) or {}))}
    if ENFORCED_FOR_ANNOTATION in patch.get("annotations", {}):
        # The label of a namespace that a controller wrote, not a user.
        patch["labels"] = {**patch.get("labels", {}), ENFORCE_LABEL: None}
    return {"metadata": patch} if patch else None


def _nulls(entries: Mapping[str, str]) -> dict[str, None]:
    return {key: None for key in sorted(entries) if is_ours(key)}


def condition_patch(obj: Obj) -> Raw | None:
    """Return the strategic merge patch of a status that removes our conditions; None without."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    removed = [
        {"$patch": "delete", "type": condition["type"]}
        for condition in conditions
        if is_ours(condition.get("type", ""))
    ]
    return {"status": {"conditions": removed}} if removed else None


def gate_patch(pod: Obj) -> list[Raw] | None:
    """Return the JSON patch that removes our scheduling gates; None without any.

    Each removal tests the gate's name, so that one removed meanwhile fails the patch.
    """
    gates = pod["spec"].get("schedulingGates") or ()
    patch: list[Raw] = []
    for index in reversed(range(len(gates))):
        if is_ours(gates[index]["name"]):
            path = f"/spec/schedulingGates/{index}"
            patch.append({"op": "test", "path": f"{path}/name", "value": gates[index]["name"]})
            patch.append({"op": "remove", "path": path})
    return patch or None


def asks_our_labels(pod: Obj) -> bool:
    """Return whether a pod that has no node yet goes only to nodes with labels of our group."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return any(
        is_ours(expression.get("key", ""))
        for term in required.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
    )


def is_managed_class(runtime_class: Obj) -> bool:
    """Return whether our controllers made a RuntimeClass."""
    return (runtime_class["metadata"].get("labels") or {}).get(MANAGED_LABEL) == MANAGED


def is_probe_class(runtime_class: Obj) -> bool:
    """Return whether an agent made a RuntimeClass for its probes, and was stopped meanwhile."""
    return PROBE_LABEL in (runtime_class["metadata"].get("labels") or {})
