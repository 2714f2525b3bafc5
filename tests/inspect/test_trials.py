"""Trials against an API in memory: refusals, obstacles, timeouts, and what is removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.api.events import Event
from moorage.api.pods import Pod
from moorage.inspect.trials import FAILED, REFUSED, RUN_LABEL, SUCCEEDED, TIMED_OUT, Trial, Trials
from moorage.runtimes.classes import NO_CLASS
from moorage.wire.client.rest import Client, WatchEvent


class FakeApi:
    """Pods and events with watches. `after_create` are the statuses that a new pod goes through."""

    def __init__(self, *after_create: dict[str, Any]) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.events: list[Any] = []
        self.after_create = after_create
        self.refusal: Exception | None = None
        self.created: list[dict[str, Any]] = []
        self.logs: Any = b"output\xff\n"
        self.creating = asyncio.Event()
        self.has_pod = asyncio.Event()
        self.may_create = asyncio.Event()
        self.may_create.set()
        self._watches: dict[str, list[asyncio.Queue[WatchEvent[Any]]]] = {}
        self._version = 0

    async def list(self, resource: Any, *_: Any, **__: Any) -> Any:
        items: list[Any] = []
        if resource.plural == "pods":
            items = [msgspec.convert(pod, Pod) for pod in self.pods.values()]
        elif resource.plural == "events":
            items = list(self.events)
        elif resource.plural == "runtimeclasses":
            meta = SimpleNamespace(name="gvisor")
            items = [SimpleNamespace(metadata=meta, handler="runsc")]
        return SimpleNamespace(items=items, metadata=SimpleNamespace(resource_version="1"))

    async def pages(self, resource: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        yield await self.list(resource)

    async def watch(self, resource: Any, *_: Any, **__: Any) -> AsyncIterator[WatchEvent[Any]]:
        queue: asyncio.Queue[WatchEvent[Any]] = asyncio.Queue()
        self._watches.setdefault(resource.plural, []).append(queue)
        while True:
            yield await queue.get()

    async def create(self, resource: Any, body: dict[str, Any], namespace: str) -> Pod:
        assert resource.plural == "pods"
        self.creating.set()
        await self.may_create.wait()
        if self.refusal is not None:
            raise self.refusal
        self.created.append(body)
        name = f"{body['metadata']['generateName']}{len(self.created)}"
        meta = {"name": name, "namespace": namespace, "uid": name, **body["metadata"]}
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
        pod = {"metadata": meta, "spec": dict(body["spec"]), "status": {"phase": "Pending"}}
        self.pods[name] = pod
        self.send(name, "ADDED")
        self.has_pod.set()
        for status in self.after_create:
            pod["spec"]["nodeName"] = "n1" if status["phase"] != "Pending" else ""
            pod["status"] = status
            self.send(name, "MODIFIED")
        return msgspec.convert(self.pods[name], Pod)

    async def delete(self, _: Any, name: str, __: str) -> None:
        if name not in self.pods:
            raise NotFoundError.of("pods", name)
        self.send(name, "DELETED")
        del self.pods[name]

    async def request(self, _: str, path: str, **__: Any) -> bytes:
        if path.endswith("/log"):
            if isinstance(self.logs, Exception):
                raise self.logs
            return cast("bytes", self.logs)
        raise ForbiddenError("no statistics")

    def send(self, name: str, type_: str) -> None:
        self._version += 1
        self.pods[name]["metadata"]["resourceVersion"] = str(self._version)
        self._send("pods", type_, msgspec.convert(self.pods[name], Pod))

    def warn(self, pod: str, reason: str, message: str) -> None:
        self._version += 1
        wire = {
            "metadata": {"name": f"e{self._version}", "resourceVersion": str(self._version)},
            "involvedObject": {"name": pod, "uid": pod}, "reason": reason, "message": message,
        }  # fmt: skip
        self._send("events", "ADDED", msgspec.convert(wire, Event))

    def _send(self, plural: str, type_: str, obj: Any) -> None:
        for queue in self._watches.get(plural, ()):
            queue.put_nowait(WatchEvent(type_, obj, str(self._version)))


class QuickClock:
    """A clock whose sleeps and monotonic seconds pass a hundred times as fast."""

    def __init__(self) -> None:
        self._begun_s = asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return 100 * (asyncio.get_running_loop().time() - self._begun_s)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]}


RUNNING = {"phase": "Running"}


async def run(api: FakeApi, trial: Trial | None = None, **how: Any) -> Any:
    trials = Trials(cast("Client", api), "shop", kind="moor-run")
    async with trials:
        for name, value in how.items():
            setattr(trials, name, value)
        return await trials.run(trial or Trial("gvisor", "busybox", ("true",)))


async def test_a_command_that_ends_well() -> None:
    api = FakeApi(RUNNING, ended(0, "Completed"))
    result = await run(api, Trial("gvisor", "busybox", ("true",), {"memory": "1Mi"}, 9))
    assert (result.outcome, result.exit_code, result.handler) == (SUCCEEDED, 0, "runsc")
    assert result.output == "output�\n"
    assert [phase.name for phase in result.phases] == ["admit", "schedule"]
    assert api.pods == {}
    spec = api.created[0]["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 69
    assert spec["containers"][0]["resources"] == {"limits": {"memory": "1Mi"}}
    assert api.created[0]["metadata"]["generateName"] == "moor-run-gvisor-"


@pytest.mark.parametrize(
    ("statuses", "outcome", "code", "reason"),
    [
        ((RUNNING, ended(3)), FAILED, 3, "exit code 3"),
        ((ended(137, "OOMKilled"),), FAILED, 137, "exit code 137 (SIGKILL), OOMKilled"),
        (
            ({"phase": "Failed", "reason": "Evicted", "message": "no room"},),
            FAILED,
            None,
            "no room",
        ),
        (({"phase": "Failed"},), FAILED, None, "the pod failed"),
    ],
)
async def test_a_command_that_fails(
    statuses: Any, outcome: str, code: int | None, reason: str
) -> None:
    result = await run(FakeApi(*statuses))
    assert (result.outcome, result.exit_code, result.reason) == (outcome, code, reason)


async def test_what_the_api_refuses_is_a_result() -> None:
    api = FakeApi()
    api.refusal = ForbiddenError("pods is forbidden: RuntimeClass not found")
    result = await run(api, Trial(NO_CLASS, "busybox"))
    assert (result.outcome, result.pod) == (REFUSED, "")
    assert result.reason == "pods is forbidden: RuntimeClass not found"


async def test_output_that_cannot_be_read_says_why() -> None:
    api = FakeApi(RUNNING, ended(0, "Completed"))
    api.logs = NotFoundError("no log")
    assert (await run(api)).output == "(no output: no log)"


async def test_an_obstacle_that_lasts_is_a_refusal() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}
    api = FakeApi({"phase": "Pending", "conditions": [condition]})
    async with Trials(cast("Client", api), "shop", kind="k", clock=cast("Any", QuickClock())) as it:
        result = await it.run(Trial("gvisor", "busybox", timeout_s=1000))
    assert (result.outcome, result.reason) == (REFUSED, "no node accepts the pod: 0/1 nodes")


async def test_a_sandbox_that_is_refused_says_so_by_its_event() -> None:
    api = FakeApi({"phase": "Pending"})
    async with Trials(cast("Client", api), "shop", kind="k", clock=cast("Any", QuickClock())) as it:
        running = asyncio.ensure_future(it.run(Trial("gvisor", "busybox", timeout_s=1000)))
        await api.has_pod.wait()
        api.warn(next(iter(api.pods)), "FailedCreatePodSandBox", "no such handler")
        result = await running
    assert result.reason == "FailedCreatePodSandBox: no such handler"
    assert result.events == ("FailedCreatePodSandBox: no such handler",)


async def test_a_command_that_takes_too_long() -> None:
    api = FakeApi(RUNNING)
    async with Trials(cast("Client", api), "shop", kind="k", clock=cast("Any", QuickClock())) as it:
        result = await it.run(Trial("gvisor", "busybox", timeout_s=3))
    assert (result.outcome, result.exit_code) == (TIMED_OUT, None)
    assert result.output == "output�\n"
    assert api.pods == {}


async def test_a_pod_that_someone_else_deletes() -> None:
    api = FakeApi(RUNNING)
    async with Trials(cast("Client", api), "shop", kind="k") as it:
        running = asyncio.ensure_future(it.run(Trial("gvisor", "busybox")))
        await api.has_pod.wait()
        await api.delete(None, next(iter(api.pods)), "shop")
        assert (await running).reason == "the pod was deleted"


async def test_kept_pods_stay_unless_the_run_was_interrupted() -> None:
    api = FakeApi(RUNNING, ended(0))
    await run(api, keeps_pods=True)
    assert len(api.pods) == 1
    label = next(iter(api.pods.values()))["metadata"]["labels"][RUN_LABEL]
    assert len(label) == 10
    interrupted = FakeApi(RUNNING)
    task = asyncio.ensure_future(run(interrupted, keeps_pods=True))
    await interrupted.has_pod.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert interrupted.pods == {}


async def test_a_pod_whose_creation_was_cut_off_is_removed_too() -> None:
    api = FakeApi(RUNNING)
    api.may_create.clear()
    task = asyncio.ensure_future(run(api))
    await api.creating.wait()
    task.cancel()
    await asyncio.sleep(0)
    # The server had the request already.
    api.may_create.set()
    with suppress(asyncio.CancelledError):
        await task
    assert len(api.created) == 1
    assert api.pods == {}


async def test_waiting_for_a_pod_to_run() -> None:
    async with Trials(cast("Client", FakeApi(RUNNING)), "shop", kind="k") as it:
        name = await it.start(Trial("gvisor", "busybox"))
        why, pod = await it.wait_running(name, 1e9)
        assert why == ""
        assert pod is not None
        assert pod.spec.node_name == "n1"
    failed = FakeApi({"phase": "Failed", "message": "no room"})
    async with Trials(cast("Client", failed), "shop", kind="k") as it:
        name = await it.start(Trial("gvisor", "busybox"))
        assert (await it.wait_running(name, 1e9))[0] == "no room"
