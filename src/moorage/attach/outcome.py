"""Outcome of an attachment: which handlers work on which nodes, and why others do not.

Pure but for `read_outcome` and `wait_profiled`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from moorage.api.clock import Clock
from moorage.api.conditions import is_ready, is_true
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.api.runtime_group import PROBE_LABEL, WORKING, RuntimeClass, RuntimeProfile
from moorage.attach.manifests.identity import COMPONENT_LABEL, OURS, RUNTIME_AGENT
from moorage.attach.progress import pod_reasons
from moorage.attach.survey import engine_problem
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import NODES, PODS, RUNTIME_CLASSES, RUNTIME_PROFILES
from moorage.wire.client.rest import Client

_AGENTS = f"{OURS},{COMPONENT_LABEL}={RUNTIME_AGENT}"


class NodeOutcome(msgspec.Struct, frozen=True):
    """A node: the handlers that work there with their isolation levels, those that do not with the
    reason, and why nothing is known of it, empty if its agent reports.
    """

    node: str
    engine: str
    working: dict[str, str] = {}
    broken: dict[str, str] = {}
    problem: str = ""
    remedy: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """All nodes, by name, and the classes by the handler that each names."""

    nodes: tuple[NodeOutcome, ...] = ()
    classes: dict[str, tuple[str, ...]] = {}


def outcome_of(
    nodes: Iterable[Node],
    agents: Iterable[Pod],
    profiles: Iterable[RuntimeProfile],
    classes: Iterable[RuntimeClass],
) -> Outcome:
    """Return the handlers that work, by node."""
    agent_of = {pod.spec.node_name: pod for pod in agents}
    profiles_of: defaultdict[str, list[RuntimeProfile]] = defaultdict(list)
    for profile in profiles:
        profiles_of[profile.spec.node_name].append(profile)
    by_handler: defaultdict[str, list[str]] = defaultdict(list)
    for one in classes:
        if PROBE_LABEL in one.metadata.labels:
            continue
        by_handler[one.handler].append(one.metadata.name)
    return Outcome(
        nodes=tuple(
            _node_outcome(node, agent_of.get(node.metadata.name), profiles_of[node.metadata.name])
            for node in sorted(nodes, key=lambda node: node.metadata.name)
        ),
        classes={handler: tuple(sorted(names)) for handler, names in sorted(by_handler.items())},
    )


def _node_outcome(node: Node, agent: Pod | None, profiles: Sequence[RuntimeProfile]) -> NodeOutcome:
    engine = node.status.node_info.container_runtime_version
    working, broken = {}, {}
    for profile in sorted(profiles, key=lambda profile: profile.spec.handler):
        handler = profile.spec.handler
        if is_true(profile.status.conditions, WORKING):
            working[handler] = profile.status.isolation
        else:
            broken[handler] = _reason(profile)
    problem, remedy = ("", "") if profiles else _silence(node, agent)
    return NodeOutcome(node.metadata.name, engine, working, broken, problem, remedy)


def _reason(profile: RuntimeProfile) -> str:
    for condition in profile.status.conditions:
        if condition.type == WORKING:
            return condition.message or condition.reason
    return "not probed yet"


def _silence(node: Node, agent: Pod | None) -> tuple[str, str]:
    """Return why nothing is known of a node, and the remedy."""
    name, info = node.metadata.name, node.status.node_info
    if info.operating_system not in ("linux", ""):
        return f"it runs {info.operating_system}", ""
    if agent is None:
        if not is_ready(node.status.conditions):
            return "the node is not ready", f"see kubectl describe node {name}"
        return (
            "no runtime agent runs there",
            "see agent.nodeSelector and agent.tolerations of the values, and "
            f"kubectl describe node {name}",
        )
    pod = f"-n {agent.metadata.namespace} {agent.metadata.name}"
    if not is_ready(agent.status.conditions):
        why = "".join(f": {reason.text}" for reason in list(pod_reasons(agent))[:1])
        return f"its runtime agent is not ready{why}", f"see kubectl describe pod {pod}"
    if problem := engine_problem(info.container_runtime_version):
        return problem, "use containerd 1.6 or later, or CRI-O 1.20 or later"
    return "its handlers are being probed", f"see moor runtimes features, and kubectl logs {pod}"


def reports_of_all(profiles: Iterable[RuntimeProfile], nodes: Iterable[Node]) -> bool:
    """Return whether each handler that a node lists has a verdict, or one if it lists none."""
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for profile in profiles:
        if any(condition.type == WORKING for condition in profile.status.conditions):
            seen[profile.spec.node_name].add(profile.spec.handler)
    for node in nodes:
        listed = {handler.name for handler in node.status.runtime_handlers} - {""}
        reported = seen[node.metadata.name]
        if not reported or not reported >= listed:
            return False
    return True


async def wait_reported(client: Client, clock: Clock, timeout_s: float) -> None:
    """Return once each node with a ready agent has reported its handlers, or after a while."""
    agents = await client.list(PODS, label_selector=_AGENTS)
    names = {pod.spec.node_name for pod in agents.items if is_ready(pod.status.conditions)}
    listed = await client.list(NODES)
    nodes = [node for node in listed.items if node.metadata.name in names]
    informer = Informer(client, RUNTIME_PROFILES, clock=clock)
    try:
        async with asyncio.timeout(timeout_s):
            await wait_until(informer, lambda profiles: reports_of_all(profiles, nodes))
    except TimeoutError:
        # The outcome names the nodes that have not.
        return


async def read_outcome(client: Client) -> Outcome:
    """Return the handlers that work by now, by node. Raises StatusError, UnreachableError."""
    nodes, agents, profiles, classes = await asyncio.gather(
        client.list(NODES),
        client.list(PODS, label_selector=_AGENTS),
        client.list(RUNTIME_PROFILES),
        client.list(RUNTIME_CLASSES),
    )
    return outcome_of(nodes.items, agents.items, profiles.items, classes.items)
