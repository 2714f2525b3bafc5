"""What the demo waits for, and how it fails, without a node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from moorage.api.conditions import is_ready
from moorage.api.events import Event
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.inspect.demo import (
    Demo,
    DemoError,
    DemoRow,
    Journal,
    detect_runtime,
    expected_pods,
    failures_of,
    find_examples,
    progress,
    refusal,
    row_of,
)
from moorage.inspect.manifests import Manifest, ManifestError
from moorage.wire.client.exec import ExecResult
from moorage.wire.client.resources import EVENTS, PODS
from moorage.wire.client.rest import Client
from tests.clocks import settle
from tests.controllers.cluster import FakeNodeAgent, running_cluster
from tests.inspect.test_manifests import CLASS, POD


def a_pod(node: str = "", waiting: str = "", **conditions: str) -> Pod:
    status: dict[str, Any] = {
        "conditions": [
            {"type": type_, "status": status, "message": "why not"}
            for type_, status in conditions.items()
        ]
    }
    if waiting:
        state = {"waiting": {"reason": waiting}}
        status["containerStatuses"] = [{"name": name, "state": state} for name in ("a", "b")]
    return msgspec.convert({"spec": {"nodeName": node}, "status": status}, Pod)


@pytest.mark.parametrize(
    ("pod", "wanted", "is_settled"),
    [
        (a_pod(), "waits for a node", False),
        (a_pod(PodScheduled="False"), "no node accepts it: why not", True),
        (a_pod("n1", PodScheduled="True"), "starting on n1", False),
        (a_pod("n1", "ErrImagePull", PodScheduled="True"), "starting on n1 (ErrImagePull)", False),
        (a_pod("n1", Ready="False", PodScheduled="True"), "starting on n1", False),
        (a_pod("n1", Ready="True", PodScheduled="True"), "running", True),
    ],
)
def test_progress(pod: Pod, wanted: str, is_settled: bool) -> None:
    assert progress(pod) == wanted
    assert bool(is_ready(pod.status.conditions) or refusal(pod)) == is_settled


def test_only_waiting_containers_are_reasons_and_each_reason_once() -> None:
    states: tuple[dict[str, Any], ...] = (
        {"running": {}},
        {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
        {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
        {"waiting": {"reason": "PodInitializing"}},
    )
    statuses = [{"name": str(number), "state": state} for number, state in enumerate(states)]
    pod = msgspec.convert(
        {
            "spec": {"nodeName": "n1"},
            "status": {"initContainerStatuses": statuses[:2], "containerStatuses": statuses[2:]},
        },
        Pod,
    )
    assert progress(pod) == "starting on n1 (ErrImagePull, PodInitializing)"
    assert progress(pod, detail=True) == (
        "starting on n1 (ErrImagePull: not found, PodInitializing)"
    )


def manifest(kind: str, namespace: str = "", **fields: Any) -> Manifest:
    meta = {"name": "x"} | ({"namespace": namespace} if namespace else {})
    return Manifest("x", {"apiVersion": "v1", "kind": kind, "metadata": meta, **fields})


@pytest.mark.parametrize(
    ("document", "count"),
    [
        (manifest("Pod"), 1),
        (manifest("Pod", "elsewhere"), 0),
        (manifest("Deployment", spec={"replicas": 3}), 3),
        (manifest("Deployment", spec={"replicas": 0}), 0),
        (manifest("Deployment", spec={}), 1),
        (manifest("ReplicaSet", spec=None), 1),
        (manifest("Deployment", "elsewhere", spec={"replicas": 3}), 0),
        (manifest("Service", spec={"replicas": 3}), 0),
        (manifest("RuntimeClass"), 0),
    ],
)
def test_how_many_pods_manifests_make(document: Manifest, count: int) -> None:
    assert expected_pods([document]) == count


def test_the_examples_of_a_checkout_are_found_from_anywhere() -> None:
    assert (find_examples() / "12-class-v1.yaml").is_file()


@pytest.mark.parametrize("content", [None, "notes.txt"])
def test_a_directory_without_examples(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / content).touch()
    directory = tmp_path if content else tmp_path / "absent"
    with pytest.raises(DemoError, match=f"no examples in {directory}"):
        find_examples(directory)


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("4.4.0\ngvisor\n", ("4.4.0", "gVisor")),
        ("6.12.9\ncore\n", ("6.12.9", "crun")),
        ("6.12.9\nmasked\n", ("6.12.9", "runc")),
        ("6.12.9\ngvisor\ncore\nmasked", ("6.12.9", "gVisor")),
        ("6.12.9\ncore\nmasked", ("6.12.9", "crun")),
        ("6.12.9\n", ("6.12.9", "?")),
        ("", ("", "?")),
    ],
)
def test_traces_of_runtimes(message: str, wanted: tuple[str, str]) -> None:
    assert detect_runtime(message) == wanted


@pytest.mark.parametrize(
    ("class_name", "is_ready", "condition", "row"),
    [
        ("kata", True, None,
         DemoRow("web", "Running", "kata", "kata-qemu", "n1", "10.244.0.7", "6.12.9", "crun",
                 1.23)),
        ("gone", False, None,
         DemoRow("web", "Running", "gone", "", "n1", "10.244.0.7", "", "", 1.23)),
        ("", False, ("PodScheduled", "False"),
         DemoRow("web", "Running", "", "(default)", "n1", "10.244.0.7", "", "", 1.23, "no room")),
    ],
)  # fmt: skip
def test_row_of_a_pod(
    class_name: str, is_ready: bool, condition: tuple[str, str] | None, row: DemoRow
) -> None:
    conditions = [{"type": "Ready", "status": "True"}] if is_ready else []
    if condition is not None:
        conditions.append({"type": condition[0], "status": condition[1], "message": "no room"})
    spec = {"nodeName": "n1"} | ({"runtimeClassName": class_name} if class_name else {})
    pod = msgspec.convert(
        {
            "metadata": {"name": "web"},
            "spec": spec,
            "status": {"phase": "Running", "podIP": "10.244.0.7", "conditions": conditions},
        },
        Pod,
    )
    runtime_class = RuntimeClass(handler="kata-qemu") if class_name == "kata" else None
    assert row_of(pod, runtime_class, "6.12.9\ncore\n", 1.23) == row


def test_a_start_is_measured_from_the_first_event_to_the_first_readiness() -> None:
    moments = iter([10.0, 11.0, 12.5, 14.0, 15.0])
    journal = Journal(lambda _: None, lambda: next(moments))
    for ready in ("False", "False", "True", "False", "True"):
        pod = a_pod("n1", PodScheduled="True", Ready=ready)
        metadata = msgspec.structs.replace(pod.metadata, name="web")
        journal.on_pod(None, msgspec.structs.replace(pod, metadata=metadata))
    assert (journal.start_s("web"), journal.start_s("api")) == (2.5, None)


def test_a_warning_that_expires_is_no_news() -> None:
    lines: list[str] = []
    journal = Journal(lines.append)
    wire = {
        "involvedObject": {"kind": "Pod", "name": "web"}, "type": "Warning", "reason": "Failed",
        "message": "no image",
    }  # fmt: skip
    event = msgspec.convert(wire, Event)
    journal.on_event(event, None)
    assert lines == []
    journal.on_event(None, event)
    assert lines == ["pod web: Failed: no image"]


def test_the_same_progress_is_reported_once() -> None:
    lines: list[str] = []
    journal = Journal(lines.append)
    for reason in ("Pulling: 1 s", "Pulling: 2 s", "Failed: no", "Pulling: 3 s"):
        name, _, message = reason.partition(": ")
        state = {"waiting": {"reason": name, "message": message}}
        wire = {
            "metadata": {"name": "web"},
            "spec": {"nodeName": "n1"},
            "status": {"containerStatuses": [{"name": "app", "state": state}]},
        }
        journal.on_pod(None, msgspec.convert(wire, Pod))
    # While it ends its containers are no news.
    ending = {"name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    journal.on_pod(None, msgspec.convert({"metadata": ending}, Pod))
    journal.on_pod(msgspec.convert({"metadata": ending}, Pod), None)
    assert lines == [
        "pod web: starting on n1 (Pulling: 1 s)",
        "pod web: starting on n1 (Failed: no)",
    ]


@pytest.mark.parametrize("late", ["pods", "runtimeclasses", "events"])
async def test_nothing_is_applied_before_everything_is_listed(late: str) -> None:
    listed: dict[str, asyncio.Event] = {}

    class LateInformer:
        def __init__(self, _: Client, resource: Any, namespace: str | None = None) -> None:
            assert namespace == (None if resource.plural == "runtimeclasses" else "default")
            self._listed = listed[resource.plural] = asyncio.Event()
            if resource.plural != late:
                self._listed.set()

        def __len__(self) -> int:
            return 0

        def __iter__(self) -> Iterator[Pod]:
            return iter(())

        def add_handler(self, _: object) -> None:
            pass

        async def run(self) -> None:
            await asyncio.get_running_loop().create_future()

        async def wait_synced(self) -> None:
            await self._listed.wait()

    class FakeApplier:
        def __init__(self, _: Client) -> None:
            pass

        async def apply(self, manifest: Manifest) -> None:
            done.append(f"apply {manifest.kind}")

        async def delete(self, manifest: Manifest) -> None:
            done.append(f"delete {manifest.kind}")

    done: list[str] = []
    manifests = [manifest("Service"), manifest("RuntimeClass")]
    make_informer: Any = LateInformer
    make_applier: Any = FakeApplier
    shown = Demo(
        cast(Client, None), manifests, lambda _: None,
        make_informer=make_informer, make_applier=make_applier,
    )  # fmt: skip
    running = asyncio.ensure_future(shown.run())
    await settle(100)
    assert done == []
    listed[late].set()
    assert await running == []
    assert done == ["apply Service", "apply RuntimeClass", "delete RuntimeClass", "delete Service"]


async def test_pods_are_shown_by_name_and_deleted_before_the_end(tmp_path: Path) -> None:
    async def exec_in(*_: object) -> ExecResult:
        return ExecResult(0, "6.12.9\ncore\n", "", "")

    lines: list[str] = []
    other = {**POD, "metadata": {"name": "api"}}
    manifests = [Manifest(*pair) for pair in (("a", CLASS), ("b", POD), ("c", other))]
    async with running_cluster(tmp_path) as cluster:
        agent = asyncio.create_task(FakeNodeAgent(cluster, "n1").run())
        rows = await Demo(cluster.client, manifests, lines.append, run_in=exec_in).run()
        pods = await cluster.client.list(PODS)
        agent.cancel()
    assert pods.items == []
    assert [(row.pod, row.status, row.handler, row.inside) for row in rows] == [
        (name, "Running", "crun", "crun") for name in ("api", "web")
    ]
    assert lines[-1] == "deleted the examples"


async def test_pods_without_progress_are_named_in_one_error(tmp_path: Path) -> None:
    reported: list[str] = []
    manifests = [Manifest("a", CLASS), Manifest("b", POD)]
    manifests.append(Manifest("c", POD | {"metadata": {"name": "api"}}))
    async with running_cluster(tmp_path) as cluster:
        shown = Demo(cluster.client, manifests, reported.append, settle_s=0.3)
        with pytest.raises(DemoError) as failure:
            await shown.run()
    assert str(failure.value) == (
        "pods do not run after 0.3 s:\n  api: waits for a node\n  web: waits for a node"
    )
    assert "applied Pod web (v1)" in reported
    assert "pod web: waits for a node" in reported


async def test_a_pod_that_cannot_start_is_reported_with_its_message_and_its_event(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    async with running_cluster(tmp_path) as cluster:
        client = cluster.client

        def say(sentence: str) -> None:
            lines.append(sentence)
            if sentence.startswith("applied Pod"):
                tasks.append(asyncio.create_task(_fail(client)))

        tasks: list[asyncio.Task[None]] = []
        shown = Demo(client, [Manifest("a", CLASS), Manifest("b", POD)], say, settle_s=6.0)
        with pytest.raises(DemoError) as failure:
            await shown.run()
        await asyncio.gather(*tasks)
    text = str(failure.value)
    assert "web: waits for a node" not in text
    # Other events are no reasons, and what the pod's condition says is said once.
    assert "unrelated" not in "\n".join([text, *lines])
    assert "\n  web: starting on n1 (CreateContainerError: no such program)" in text
    assert "\n    event FailedCreatePodSandBox: no runtime for handler" in text
    assert "pod web: starting on n1 (CreateContainerError: no such program)" in lines
    assert "pod web: FailedCreatePodSandBox: no runtime for handler" in lines


def test_failures_name_pods_that_are_not_ready_or_not_gone() -> None:
    def named(name: str, pod: Pod, **meta: str) -> Pod:
        metadata = msgspec.convert({"name": name, **meta}, type(pod.metadata))
        return msgspec.structs.replace(pod, metadata=metadata)

    running = a_pod("n1", Ready="True")
    pods: Any = [
        named("web", a_pod()),
        named("api", running),
        named("db", running, deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    assert list(failures_of(pods, [])) == ["\n  db: running", "\n  web: waits for a node"]


async def _fail(client: Client) -> None:
    """Do to the pod what a node does that cannot start it."""
    pod = await client.get(PODS, "web", "default")
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}}
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    path = PODS.path("default", "web", "binding")
    await client.request("POST", path, body=msgspec.json.encode(binding | {"target": target}))
    state = {"waiting": {"reason": "CreateContainerError", "message": "no such program"}}
    status = {"containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": False,
                                     "restartCount": 0, "state": state}]}  # fmt: skip
    await client.patch(PODS, "web", {"status": status}, "default", subresource="status")
    for number, (kind, type_, reason, message) in enumerate((
        ("Pod", "Normal", "Pulling", "unrelated"),
        ("ReplicaSet", "Warning", "FailedCreate", "unrelated"),
        ("Pod", "Warning", "FailedScheduling", "unrelated"),
        ("Pod", "Warning", "FailedCreatePodSandBox", "no runtime for handler"),
        ("ReplicaSet", "Warning", "FailedCreate", "unrelated"),
    )):  # fmt: skip
        await client.create(
            EVENTS,
            {
                "metadata": {"name": f"web.{number}", "namespace": "default"},
                "involvedObject": {"kind": kind, "namespace": "default", "name": "web",
                                   "uid": pod.metadata.uid},
                "reason": reason,
                "message": message,
                "type": type_,
            },
            "default",
        )  # fmt: skip


async def test_a_manifest_that_the_server_does_not_know(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        shown = Demo(cluster.client, [manifest("Ship")], lambda _: None)
        with pytest.raises(ManifestError, match="does not serve Ship of v1"):
            await shown.run()
