"""Explanations: the words for each state, and one pod asked about through the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.api.clock import format_time
from moorage.api.errors import NotFoundError
from moorage.api.events import Event
from moorage.api.names import Namespace
from moorage.api.pods import ContainerStatus, Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.engine.handlers import Handler
from moorage.inspect.explain import (
    NodeAnswer,
    PodExplanation,
    class_words,
    event_words,
    explain_pod,
    handler_words,
    recorded_handler,
    remedies_of,
    state_words,
    verdict_of,
)
from moorage.inspect.manifests import Applier, Manifest
from moorage.node.paths import NodePaths
from moorage.node.pods.handler_choice import HandlerRecord, HandlerRecords
from moorage.scheduler import Explanation, NodeVerdict, explain
from moorage.scheduler.explain import Objection
from moorage.wire.client.resources import EVENTS, NAMESPACES, NODES, PODS, RUNTIME_CLASSES
from tests.controllers.cluster import running_cluster
from tests.inspect.test_manifests import CLASS, POD

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def an_event(**fields: Any) -> Event:
    usual = {"type": "Warning", "reason": "Failed", "message": "no image", "count": 1}
    return msgspec.convert(usual | fields, Event)


def a_pod(phase: str = "Pending", node: str = "", **meta: Any) -> Pod:
    status: dict[str, Any] = {"phase": phase, "message": "evicted" if phase == "Failed" else ""}
    if phase == "Ready":
        status = {"phase": "Running"} | {"conditions": [{"type": "Ready", "status": "True"}]}
    wire = {"metadata": {"name": "web", **meta}, "spec": {"nodeName": node}, "status": status}
    return msgspec.convert(wire, Pod)


def found_for(pod: Pod) -> Explanation:
    return explain(pod, [], [], [], namespace_labels={}, filters_by_handler=True)


@pytest.mark.parametrize(
    ("pod", "events", "message"),
    [
        (a_pod(), [], f"has no node: {found_for(a_pod()).summary}"),
        (a_pod(node="n1"), [], "is on node n1, but has not started"),
        (a_pod(node="n1"), [an_event(), an_event(type="Normal", reason="Pulling")],
         "is on node n1, but has not started: Failed: no image"),
        (a_pod(node="n1"), [an_event(reason="Old"), an_event(), an_event(type="Normal")],
         "is on node n1, but has not started: Failed: no image"),
        (a_pod("Running", "n1"), [], "runs on node n1, but is not ready"),
        (a_pod("Ready", "n1"), [], "runs on node n1 under the node's default handler"),
        (a_pod("Succeeded", "n1"), [], "has ended (Succeeded) on node n1"),
        (a_pod("Failed", "n1"), [], "has ended (Failed) on node n1: evicted"),
        (a_pod("Ready", "n1", deletionTimestamp="2026-01-01T00:00:00Z"), [],
         "is being deleted, from node n1"),
        (a_pod(deletionTimestamp="2026-01-01T00:00:00Z"), [], "is being deleted"),
    ],
)  # fmt: skip
def test_verdicts(pod: Pod, events: list[Event], message: str) -> None:
    assert verdict_of(pod, found_for(pod), events) == message


CRASHED = {
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
    "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
}
START_FAILED = {
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {
        "terminated": {"exitCode": 128, "reason": "StartError", "message": "exec: x: not found"}
    },
}


@pytest.mark.parametrize(
    ("phase", "container", "message", "remedy"),
    [
        ("Pending", {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}},
         "is on node n1, but container app waits (ErrImagePull): no such host",
         "moor image load"),
        ("Running", CRASHED,
         "but container app waits (CrashLoopBackOff): back-off 10s; it ended with 3 (Error)",
         "kubectl logs --previous -n ns1 web -c app"),
        ("Running", START_FAILED, "it ended with 128 (StartError): exec: x: not found",
         "correct the container's command, or its limits"),
        ("Pending", {"state": {"waiting": {"reason": "ContainerCreating"}}},
         "has not started: Failed: no image", ""),
        ("Running", {"state": {"running": {}}}, "runs on node n1, but is not ready", ""),
    ],
)  # fmt: skip
def test_a_container_that_is_stuck_is_named_with_its_reason_and_a_remedy(
    phase: str, container: dict[str, Any], message: str, remedy: str
) -> None:
    pod = a_pod(phase, "n1", namespace="ns1")
    status = msgspec.convert({"name": "app"} | container, ContainerStatus)
    pod = msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, container_statuses=(status,))
    )
    assert message in verdict_of(pod, found_for(pod), [an_event()])
    remedies = list(remedies_of(pod, found_for(pod), ()))
    assert remedy in remedies[0] if remedy else remedies == []


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "unknown"),
        ({"running": {}}, "running, not ready"),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "ended with 137 (OOMKilled)"),
        ({"waiting": {"reason": "ErrImagePull"}}, "waits (ErrImagePull)"),
        ({"waiting": {"reason": "ErrImagePull", "message": "gone"}}, "waits (ErrImagePull): gone"),
    ],
)
def test_states_of_containers(state: dict[str, Any], message: str) -> None:
    assert state_words(msgspec.convert({"name": "app", "state": state}, ContainerStatus)) == message


@pytest.mark.parametrize(
    ("seconds", "count", "message"),
    [
        (90, 1, "Warning Failed (90 s ago): no image"),
        (90, 3, "Warning Failed (90 s ago, 3 times): no image"),
        # The clock was put back, or the node's runs ahead.
        (-90, 1, "Warning Failed (0 s ago): no image"),
    ],
)
def test_events_are_shown_with_their_age(seconds: int, count: int, message: str) -> None:
    moment = format_time(NOW - timedelta(seconds=seconds))
    assert event_words(an_event(lastTimestamp=moment, count=count), NOW) == message


@pytest.mark.parametrize(
    ("fields", "ago"),
    [
        ({}, "time unknown"),
        ({"lastTimestamp": 1, "eventTime": 2, "metadata": 3}, "1 s ago"),
        ({"eventTime": 2, "metadata": 3}, "2 s ago"),
        ({"metadata": 3}, "3 s ago"),
    ],
)
def test_the_moment_of_an_event(fields: dict[str, int], ago: str) -> None:
    moments: dict[str, Any] = {
        name: format_time(NOW - timedelta(seconds=seconds)) for name, seconds in fields.items()
    }
    if "metadata" in moments:
        moments["metadata"] = {"creationTimestamp": moments["metadata"]}
    assert event_words(an_event(**moments), NOW) == f"Warning Failed ({ago}): no image"


_NO_IMAGE = (
    "check the image's name; without a registry, load the image with `moor image load` and do not "
    "set imagePullPolicy: Always"
)


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("ErrImagePull", _NO_IMAGE),
        ("ImagePullBackOff", _NO_IMAGE),
        ("RegistryUnavailable", _NO_IMAGE),
        ("ErrImageNeverPull",
         "load the image with `moor image load`, or change imagePullPolicy: Never"),
        ("InvalidImageName", "correct the image's name"),
        ("CrashLoopBackOff", "see what it wrote: kubectl logs --previous -n ns1 web -c app"),
        ("CreateContainerConfigError", "create what is missing, or correct its name in the pod"),
        # These end by themselves.
        ("ContainerCreating", None),
        ("PodInitializing", None),
    ],
)  # fmt: skip
def test_each_reason_to_wait_has_its_remedy(reason: str, remedy: str | None) -> None:
    state = {"waiting": {"reason": reason}}
    status = msgspec.convert({"name": "app", "state": state}, ContainerStatus)
    pod = a_pod(node="n1", namespace="ns1")
    for field in ("container_statuses", "init_container_statuses"):
        statuses = {field: (status,)}
        changed = msgspec.structs.replace(pod.status, **statuses)
        waiting = msgspec.structs.replace(pod, status=changed)
        wanted = [] if remedy is None else [remedy]
        assert list(remedies_of(waiting, found_for(waiting), ())) == wanted
        is_stuck = f"container app waits ({reason})" in verdict_of(waiting, found_for(waiting), [])
        assert is_stuck is (remedy is not None)


@pytest.mark.parametrize(
    ("name", "exists", "message"),
    [
        (None, False, "none: the node's default handler"),
        ("kata", True, "kata"),
        ("kata", False, "kata, which does not exist"),
    ],
)
def test_the_class_of_a_pod(name: str | None, exists: bool, message: str) -> None:
    spec = {"runtimeClassName": name} if name else {}
    pod = msgspec.convert({"metadata": {"name": "web"}, "spec": spec}, Pod)
    assert class_words(pod, RuntimeClass(handler="kata") if exists else None) == message


def handler_of(name: str | None) -> Explanation:
    return Explanation("no node", None, name, ())


@pytest.mark.parametrize(
    ("handler", "recorded", "message"),
    [
        ("kata", None, "kata"),
        ("", None, "the node's default"),
        (None, None, "unknown, since the class does not exist"),
        ("kata", "kata", "kata"),
        ("", "", "the node's default"),
        ("kata", "runc", "runc, with which the pod was admitted; its class now says kata"),
        ("", "runc",
         "runc, with which the pod was admitted; its class now says the node's default"),
        (None, "runc", "runc, with which the pod was admitted"),
        (None, "", "the node's default, with which the pod was admitted"),
    ],
)  # fmt: skip
def test_the_handler_of_a_pod(handler: str | None, recorded: str | None, message: str) -> None:
    assert handler_words(handler_of(handler), recorded) == message


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (None, "runs on node n1 under handler kata"),
        ("runc", "runs on node n1 under handler runc"),
        ("", "runs on node n1 under the node's default handler"),
    ],
)
def test_a_running_pod_is_shown_with_the_recorded_handler(
    recorded: str | None, message: str
) -> None:
    assert verdict_of(a_pod("Ready", "n1"), handler_of("kata"), [], recorded) == message


@pytest.mark.parametrize(
    ("local", "remedies"),
    [
        ([], ["buy one"]),
        (["kata"], ["buy one"]),
        (["kata!"], ["on this machine, kata is not here: get kata", "buy one"]),
        (["runc!"], ["buy one"]),
    ],
)
def test_remedies_for_a_pod_without_a_node(local: list[str], remedies: list[str]) -> None:
    handlers = [
        Handler(
            handler=name.rstrip("!"),
            runtime="x",
            reason=f"{name.rstrip('!')} is not here" if name.endswith("!") else "",
            remedy=f"get {name.rstrip('!')}",
            available=not name.endswith("!"),
        )
        for name in local
    ]
    objection = Objection("NodeName", ("no",), "", "buy one")
    explanation = Explanation("0/1 nodes", None, "kata", (NodeVerdict("n1", (objection,)),))
    assert list(remedies_of(a_pod(), explanation, handlers)) == remedies
    blocked = Explanation("blocked", objection, "kata", (NodeVerdict("n1", (objection,)),))
    assert list(remedies_of(a_pod(), blocked, handlers)) == ["buy one"]
    assert list(remedies_of(a_pod(node="n1"), blocked, handlers)) == []


async def test_a_record_is_read_only_for_a_pod_with_a_node() -> None:
    class Records:
        def __init__(self, outcome: Any) -> None:
            self.outcome = outcome
            self.uids: list[str] = []

        async def read(self, uid: str) -> Any:
            self.uids.append(uid)
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return self.outcome

    outcomes: list[Any] = [HandlerRecord("kata", "runc"), None, PermissionError(13, "no")]
    for outcome, recorded in zip(outcomes, ["runc", None, None], strict=True):
        records: Any = Records(outcome)
        assert await recorded_handler(records, a_pod(node="n1", uid="u1")) == recorded
        assert records.uids == ["u1"]
        assert await recorded_handler(records, a_pod(uid="u1")) is None
        assert records.uids == ["u1"]
    assert await recorded_handler(None, a_pod(node="n1")) is None


async def test_a_pod_without_a_node_is_explained(tmp_path: Path) -> None:
    kata = CLASS | {"metadata": {"name": "crun"}, "handler": "kata"}
    missing = Handler(handler="kata", runtime="kata", reason="kata is not here", remedy="get it")
    async with running_cluster(tmp_path) as cluster:
        applier = Applier(cluster.client)
        for document in (kata, POD):
            await applier.apply(Manifest("x", document))
        answer = await explain_pod(
            cluster.client, "default", "web",
            filters_by_handler=True, now=NOW, local_handlers=[missing],
        )  # fmt: skip
        assert (answer.pod, answer.node, answer.handler) == ("default/web", "", "kata")
        assert answer.runtime_class == "crun"
        assert answer.verdict.startswith("has no node")
        # Without any node, what this machine lacks is not what is in the way.
        assert answer.remedies == ("stop the cluster, then `moor up` as root without --no-node",)
        with pytest.raises(NotFoundError):
            await explain_pod(cluster.client, "default", "gone", filters_by_handler=True, now=NOW)


@pytest.mark.parametrize(
    ("record", "has_class", "message"),
    [
        (HandlerRecord("crun", "crun"), False, "crun, with which the pod was admitted"),
        (HandlerRecord("crun", "runc"), True,
         "runc, with which the pod was admitted; its class now says crun"),
        (HandlerRecord("crun", "crun"), True, "crun"),
        (HandlerRecord("crun", ""), True,
         "the node's default, with which the pod was admitted; its class now says crun"),
        (None, True, "crun"),
        (None, False, "unknown, since the class does not exist"),
        ("damaged", True, "crun"),
    ],
)  # fmt: skip
async def test_the_handler_of_a_placed_pod_is_the_recorded_one(
    tmp_path: Path, record: HandlerRecord | str | None, has_class: bool, message: str
) -> None:
    async with running_cluster(tmp_path / "cluster") as cluster:
        applier = Applier(cluster.client)
        spec = POD["spec"] | {"nodeName": "n1"}
        for document in (CLASS, POD | {"spec": spec}):
            await applier.apply(Manifest("x", document))
        pod = await cluster.client.get(PODS, "web", "default")
        if not has_class:
            await cluster.client.delete(RUNTIME_CLASSES, "crun")
        paths = NodePaths(tmp_path / "node", tmp_path / "logs")
        if isinstance(record, HandlerRecord):
            await HandlerRecords(paths).write(pod.metadata.uid, record)
        elif record is not None:
            paths.pod(pod.metadata.uid).root.mkdir(parents=True)
            paths.pod(pod.metadata.uid).runtime_handler.write_text(record)
        answer = await explain_pod(
            cluster.client, "default", "web",
            filters_by_handler=True, now=NOW, records=HandlerRecords(paths),
        )  # fmt: skip
    assert answer.handler == message


async def test_a_pod_is_explained_from_all_that_the_api_knows() -> None:
    wire = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
        "spec": {"nodeName": "n1", "runtimeClassName": "kata", "overhead": {"cpu": "250m"}},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "app", "ready": True, "restartCount": 2, "state": {"running": {}}}
            ],
        },
    }
    pod = msgspec.convert(wire, Pod)
    kata = msgspec.convert({"metadata": {"name": "kata"}, "handler": "kata-qemu"}, RuntimeClass)
    shop = msgspec.convert({"metadata": {"name": "shop", "labels": {"a": "b"}}}, Namespace)
    times = [format_time(NOW - timedelta(seconds=seconds)) for seconds in range(12)]
    events = [an_event(message=f"m{age}", lastTimestamp=time) for age, time in enumerate(times)]
    answers: dict[Any, list[Any]] = {
        NODES: ["node"], PODS: [pod], RUNTIME_CLASSES: [kata], NAMESPACES: [shop], EVENTS: events
    }  # fmt: skip
    lists: list[tuple[Any, ...]] = []

    class Api:
        async def get(self, *arguments: Any) -> Pod:
            assert arguments == (PODS, "web", "shop")
            return pod

        async def list(self, resource: Any, *arguments: Any, **more: Any) -> Any:
            lists.append((resource, *arguments, *more.items()))
            return SimpleNamespace(items=answers[resource])

    asked: list[Any] = []

    def explain(*arguments: Any, **more: Any) -> Explanation:
        asked.append((arguments, more))
        objection = Objection("NodeName", ("no", "room"), "why", "buy one")
        verdicts = (NodeVerdict("n1", ()), NodeVerdict("n2", (objection,)))
        return Explanation("1/2 nodes", None, "kata-qemu", verdicts)

    api: Any = Api()
    answer = await explain_pod(
        api, "shop", "web", filters_by_handler=False, now=NOW, explain=explain
    )
    assert asked == [
        (
            (pod, ["node"], [pod], [kata]),
            {
                "namespace_labels": {"shop": {"a": "b"}},
                "storage": None,
                "filters_by_handler": False,
            },
        )
    ]
    others = [(NODES,), (PODS,), (RUNTIME_CLASSES,), (NAMESPACES,)]
    assert lists == [*others, (EVENTS, "shop", ("field_selector", "involvedObject.uid=u1"))]
    assert answer == PodExplanation(
        pod="shop/web",
        phase="Running",
        verdict="runs on node n1 under handler kata-qemu",
        runtime_class="kata",
        handler="kata-qemu",
        overhead={"cpu": "250m"},
        node="n1",
        nodes=(NodeAnswer("n1", True, ()), NodeAnswer("n2", False, ("no; room (why)",))),
        containers=("app: running, 2 restarts",),
        # The ten latest, the oldest of them first.
        events=tuple(f"Warning Failed ({age} s ago): m{age}" for age in range(9, -1, -1)),
        remedies=(),
    )
