"""Handler gate: why a pod with the scheduling gate of its handler waits, and what ends it.

The controller of gates writes a condition on such pods, which says what they wait for; it removes
the gate by itself. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.api.runtime_group import (
    HANDLER_AVAILABLE,
    HANDLER_GATE,
    handler_condition,
    handler_label,
)
from moorage.runtimeclass.handler import is_implicit

_NOT_NEEDED = (
    f"the gate {HANDLER_GATE} is for pods with a RuntimeClass: remove it from spec.schedulingGates"
)


class Wait(msgspec.Struct, frozen=True):
    """What a pod waits for, in a sentence, and what ends it. `lacking` nodes miss the handler."""

    message: str
    remedy: str
    lacking: frozenset[str] = frozenset()


def wait_of(pod: Pod, handler: str | None, nodes: Iterable[Node]) -> Wait | None:
    """Return the wait of a pod with the gate, None for one without it.

    `handler` is that of its class, None if the class does not exist.
    """
    if not any(gate.name == HANDLER_GATE for gate in pod.spec.scheduling_gates):
        return None
    name = pod.spec.runtime_class_name
    if is_implicit(name):
        return Wait(f"scheduling gate {HANDLER_GATE}", _NOT_NEEDED)
    if handler is None:
        return Wait(
            _said(pod) or f"RuntimeClass {name} does not exist",
            f"create the RuntimeClass {name}, or delete the pod",
        )
    label, nodes = handler_label(handler), tuple(nodes)
    names = {node.metadata.name for node in nodes}
    lacking = frozenset(
        node.metadata.name for node in nodes if node.metadata.labels.get(label) != "true"
    )
    message = (
        _said(pod) or f'waiting for a node with the handler "{handler}" of RuntimeClass {name}'
    )
    if names - lacking:
        return Wait(message, _elsewhere(handler), lacking)
    failing = problems_of(handler, nodes)
    if failing:
        return Wait(message, _correct(handler, failing), lacking)
    return Wait(message, _install(handler, str(name)), lacking)


def problems_of(handler: str, nodes: Iterable[Node]) -> dict[str, str]:
    """Return the failure of a handler's probe by node, without nodes where it works."""
    type_ = handler_condition(handler)
    return {
        node.metadata.name: condition.message
        for node in nodes
        for condition in node.status.conditions
        if condition.type == type_ and condition.status == "False"
    }


def _said(pod: Pod) -> str:
    """Return the message of the gates' controller in the pod's condition."""
    conditions = pod.status.conditions
    return next(
        (one.message for one in conditions
         if one.type == HANDLER_AVAILABLE and one.status == "False"), ""
    )  # fmt: skip


def _install(handler: str, class_name: str) -> str:
    return (
        f'install the handler "{handler}" of RuntimeClass {class_name} on a node: '
        f"`moor runtime add {handler}` there, or a RuntimeInstallation for many nodes; or name "
        "another class: kubectl get runtimeclasses. The gate goes by itself"
    )


def _correct(handler: str, failing: Mapping[str, str]) -> str:
    node, problem = min(failing.items())
    return (
        f'node {node} has the handler "{handler}", and its probe fails: {problem}. It is probed '
        "again, and the gate goes, by itself"
    )


def _elsewhere(handler: str) -> str:
    return (
        f'nodes that the pod may not use have the handler "{handler}", or they lack a feature '
        f"that it needs: see `moor runtimes features`; change what it selects or needs, "
        f"or install the handler on the nodes that it may use: `moor runtime add {handler}`"
    )
