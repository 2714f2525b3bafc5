"""Outcome of an attachment: what works where, and why nothing is known of a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.clock import SystemClock
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass, RuntimeProfile
from moorage.attach.manifests.identity import labels
from moorage.attach.outcome import (
    NodeOutcome,
    outcome_of,
    read_outcome,
    reports_of_all,
    wait_reported,
)
from tests.attach.object_server import Obj, running

_ENGINE = "containerd://2.1.4"
_AGENT = "-n moorage-system agent-n"
_DESCRIBE = "see kubectl describe node n"


def ready(status: str) -> Obj:
    return {"conditions": [{"type": "Ready", "status": status}]}


def node(name: str = "n", *handlers: str, system: str = "linux", engine: str = _ENGINE,
         status: str = "True") -> Obj:  # fmt: skip
    info = {"operatingSystem": system, "containerRuntimeVersion": engine}
    listed = [{"name": handler} for handler in handlers]
    fields = {"nodeInfo": info, "runtimeHandlers": listed, **ready(status)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": fields}


def agent(of: str = "n", status: str = "True", **more: Any) -> Obj:
    metadata = {
        "name": f"agent-{of}", "namespace": "moorage-system", "labels": labels("runtime-agent"),
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": of},
            "status": {**ready(status), **more}}  # fmt: skip


def profile(handler: str, verdict: str | None = "True", of: str = "n", **condition: Any) -> Obj:
    conditions = [{"type": "Other", "status": "False", "message": "other"}]
    if verdict is not None:
        conditions.append({"type": "Working", "status": verdict, **condition})
    return {
        "apiVersion": "runtime.moorage.dev/v1alpha1", "kind": "RuntimeProfile",
        "metadata": {"name": f"{of}-{handler}"}, "spec": {"nodeName": of, "handler": handler},
        "status": {"isolation": f"level-{handler}", "conditions": conditions},
    }  # fmt: skip


def runtime_class(name: str, handler: str, **labels: str) -> Obj:
    own = {f"runtime.moorage.dev/{key}": text for key, text in labels.items()}
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": handler,
            "metadata": {"name": name, "labels": own}}  # fmt: skip


def all_as(type_: type[Any], found: list[Obj]) -> list[Any]:
    return [msgspec.convert(obj, type_) for obj in found]


def outcome(
    nodes: list[Obj], agents: list[Obj], profiles: list[Obj], classes: list[Obj]
) -> tuple[tuple[NodeOutcome, ...], dict[str, tuple[str, ...]]]:
    found = outcome_of(
        all_as(Node, nodes),
        all_as(Pod, agents),
        all_as(RuntimeProfile, profiles),
        all_as(RuntimeClass, classes),
    )
    return found.nodes, found.classes


def test_handlers_are_separated_by_whether_they_work() -> None:
    profiles = [
        profile("runsc"),
        profile("kata", "False", reason="NoDevice", message="no /dev/kvm"),
        profile("crun", "False", reason="NoBinary"),
        profile("youki", None),
        profile("runc"),
        profile("runc", of="other"),
    ]
    (first, second), _ = outcome([node("other"), node()], [], profiles, [])
    assert first == NodeOutcome(
        "n", _ENGINE,
        {"runc": "level-runc", "runsc": "level-runsc"},
        {"crun": "NoBinary", "kata": "no /dev/kvm", "youki": "not probed yet"},
    )  # fmt: skip
    assert list(first.working) == ["runc", "runsc"]
    assert list(first.broken) == ["crun", "kata", "youki"]
    assert second == NodeOutcome("other", _ENGINE, {"runc": "level-runc"})


def test_classes_are_sorted_by_their_handler() -> None:
    classes = [
        runtime_class("sandbox", "runsc"), runtime_class("gvisor", "runsc"),
        runtime_class("plain", "crun", managed="true"), runtime_class("probe", "crun", probe="x"),
    ]  # fmt: skip
    _, found = outcome([], [], [], classes)
    assert found == {"crun": ("plain",), "runsc": ("gvisor", "sandbox")}
    assert list(found) == ["crun", "runsc"]


_WAITING: Obj = {"containerStatuses": [
    {"name": "c", "state": {"waiting": {"reason": reason, "message": "m"}}}
    for reason in ("ErrImagePull", "InvalidImageName")
]}  # fmt: skip


@pytest.mark.parametrize(
    ("one", "agents", "problem", "remedy"),
    [
        (node(system="windows"), [agent()], "it runs windows", ""),
        (node(status="False"), [], "the node is not ready", _DESCRIBE),
        (node(), [agent("other")], "no runtime agent runs there",
         "see agent.nodeSelector and agent.tolerations of the values, and kubectl describe node n"),
        (node(system=""), [agent(status="False")], "its runtime agent is not ready",
         f"see kubectl describe pod {_AGENT}"),
        (node(), [agent(status="False", **_WAITING)],
         "its runtime agent is not ready: ErrImagePull: m", f"see kubectl describe pod {_AGENT}"),
        (node(engine="docker://27.0"), [agent()], "engine docker://27.0 is not known",
         "use containerd 1.6 or later, or CRI-O 1.20 or later"),
        (node(), [agent()], "its handlers are being probed",
         f"see moor runtimes features, and kubectl logs {_AGENT}"),
    ],
)  # fmt: skip
def test_why_nothing_is_known_of_a_node(
    one: Obj, agents: list[Obj], problem: str, remedy: str
) -> None:
    ((found,), _) = outcome([one], agents, [], [])
    assert (found.problem, found.remedy) == (problem, remedy)
    ((reporting,), _) = outcome([one], agents, [profile("runc")], [])
    assert (reporting.problem, reporting.remedy) == ("", "")


@pytest.mark.parametrize(
    ("profiles", "nodes", "are_all"),
    [
        ([], [], True),
        ([], [node()], False),
        ([profile("runc")], [node()], True),
        ([profile("runc", "False")], [node()], True),
        ([profile("runc", None)], [node()], False),
        ([profile("runc", of="other")], [node()], False),
        ([profile("runc")], [node("n", "", "runc")], True),
        ([profile("runc")], [node("n", "runc", "runsc")], False),
        ([profile("runc"), profile("runsc")], [node("n", "runc")], True),
        ([profile("runc")], [node(), node("m")], False),
        ([profile("runc", of="m")], [node(), node("m")], False),
    ],
)
def test_a_node_has_reported_when_all_its_handlers_have_a_verdict(
    profiles: list[Obj], nodes: list[Obj], *, are_all: bool
) -> None:
    found = reports_of_all(all_as(RuntimeProfile, profiles), all_as(Node, nodes))
    assert found is are_all


async def test_nodes_with_a_ready_agent_are_waited_for_a_while() -> None:
    async with running() as (server, client):
        for obj in (node("n", "runc"), node("m"), agent(), agent("m", "False")):
            server.put(obj)
        # None but the first has a ready agent, and it does not report in time.
        await wait_reported(client, SystemClock(), 0.1)

        def report(plural: str) -> None:
            del plural
            server.put(profile("runc"))

        server.on_watch = report
        await wait_reported(client, SystemClock(), 20)
        for obj in (runtime_class("plain", "runc"), profile("runc", of="m")):
            server.put(obj)
        stray = agent("n", "False")
        stray["metadata"] |= {"name": "other", "labels": {}}
        server.put(stray)
        found = await read_outcome(client)
    assert [one.working for one in found.nodes] == [{"runc": "level-runc"}] * 2
    assert [one.node for one in found.nodes] == ["m", "n"]
    assert found.classes == {"runc": ("plain",)}
