"""Probes as pods of a node: results, refusals, ends, and what is removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.runtime_group import PROBE_LABEL
from moorage.runtimes.probing.carrier import (
    CarrierError,
    Outcome,
    ProbeContainer,
    ProbeRefusedError,
)
from moorage.runtimes.probing.pod_carrier import PodCarrier
from moorage.wire.client.resources import (
    EVENTS,
    NAMESPACES,
    PODS,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    Resource,
)
from moorage.wire.client.rest import Client, UnreachableError
from tests.clocks import FakeClock
from tests.controllers.memory import Json, MemoryClient

_NS = "moorage-probes"
_OWNER = "c1.n1"
_LABELS = {PROBE_LABEL: _OWNER}
_CLASS = "moorage-probe-crun.n1"
_PROBE = ProbeContainer(image="probe:1", command=("/probe/facts",))
_DEADLINE_S = 20.0
_SHORT_S = 0.1


def _running() -> Json:
    return {"phase": "Running", "containerStatuses": [_status(running={})]}


def _status(**state: Any) -> Json:
    return {"name": "probe", "state": state}


def _ended(**fields: Any) -> Json:
    status = _status(terminated={"exitCode": 0, **fields})
    return {"phase": "Succeeded", "containerStatuses": [{"name": "other"}, status]}


class _Websocket:
    """What a server sends, and the end; `None` in the messages stays open."""

    def __init__(self, messages: list[bytes | None]) -> None:
        self._messages = messages

    def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        return self._sent()

    async def _sent(self) -> AsyncIterator[aiohttp.WSMessage]:
        for message in self._messages:
            if message is None:
                await asyncio.Event().wait()
            yield aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, message, None)


class _Cluster(MemoryClient):
    """An API server, and a kubelet that gives each new pod the status `starts_as`."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.starts_as: Json = _ended()
        self.follows: list[Json] = []
        """Statuses after it."""
        self.refusal: Json | None = None
        self.log: bytes | Exception = b""
        self.sockets: dict[str, list[bytes | None] | Exception] = {}
        self.paths: list[str] = []
        account = {"metadata": {"name": "default", "namespace": _NS}}
        self.put(SERVICE_ACCOUNTS, account)
        self.queries: list[Any] = []

    async def create(self, resource: Resource[Any], obj: Any, *rest: Any, **more: Any) -> Any:
        created = await super().create(resource, obj, *rest, **more)
        if resource is PODS:
            asyncio.get_running_loop().call_soon(self.act, created.metadata.name)
        return created

    def act(self, name: str) -> None:
        """Do what a kubelet does with a pod."""
        for status in (self.starts_as, *self.follows):
            pod = self.find(PODS, name, _NS)
            if pod is not None:
                self.put(PODS, {**pod, "status": status})
        if self.refusal is not None:
            pod = self.find(PODS, name, _NS) or {"metadata": {}}
            about = {"involvedObject": {"kind": "Pod", "uid": pod["metadata"].get("uid")}}
            meta = {"name": "e", "namespace": _NS}
            self.put(EVENTS, {"metadata": meta, **about, **self.refusal})

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        self.queries.append((method, path.rpartition("/")[2], more.get("query")))
        if isinstance(self.log, Exception):
            raise self.log
        return self.log

    @asynccontextmanager
    async def websocket(self, path: str, protocol: str) -> AsyncIterator[Any]:
        self.paths.append(path)
        answer = self.sockets[protocol]
        if isinstance(answer, Exception):
            raise answer
        yield _Websocket(answer)


@pytest.fixture
def cluster() -> _Cluster:
    return _Cluster()


def _carrier(cluster: _Cluster, **more: Any) -> PodCarrier:
    return PodCarrier(cast(Client, cluster), node="n1", owner=_OWNER, **more)


async def test_a_probe_is_a_pod_that_is_run_to_its_end_and_removed(cluster: _Cluster) -> None:
    cluster.starts_as = _ended(exitCode=3, reason="Error", message="it\nfailed")
    cluster.log = b"out\xff"
    result = await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.exit_code, result.output) == (Outcome.ENDED, 3, "out�")
    assert (result.reason, result.error) == ("Error", "it failed")
    assert 0 < result.start_s <= result.total_s < _DEADLINE_S
    (created,) = cluster.asked("create", PODS)
    assert created.key.startswith(f"{_NS}/probe-")
    assert created.key.endswith(".n1")
    assert created.body["spec"]["nodeName"] == "n1"
    assert created.body["spec"]["runtimeClassName"] == _CLASS
    assert created.body["metadata"]["labels"] == _LABELS
    assert created.body["spec"]["containers"][0]["image"] == "probe:1"
    assert cluster.names(PODS) == []
    (deleted,) = cluster.asked("delete", PODS)
    assert deleted.more["grace_period_seconds"] == 0
    assert cluster.queries == [("GET", "log", {"container": "probe", "limitBytes": "65536"})]


async def test_the_class_of_a_handler_is_made_once_and_stays_until_it_is_removed(
    cluster: _Cluster,
) -> None:
    carrier = _carrier(cluster)
    for _ in range(2):
        await carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    await carrier.run("", _PROBE, deadline_s=_DEADLINE_S)
    (created,) = cluster.asked("create", RUNTIME_CLASSES)
    assert created.body == {"metadata": {"name": _CLASS, "labels": _LABELS}, "handler": "crun"}
    assert "runtimeClassName" not in cluster.asked("create", PODS)[-1].body["spec"]
    cluster.starts_as = _running()
    async with carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S):
        await carrier.remove_classes()
        assert cluster.names(RUNTIME_CLASSES) == [_CLASS]
    await carrier.remove_classes()
    assert cluster.names(RUNTIME_CLASSES) == []
    async with carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S):
        assert cluster.names(RUNTIME_CLASSES) == [_CLASS]
    cluster.drop(RUNTIME_CLASSES, _CLASS)
    await carrier.remove_classes()


async def test_a_class_that_cannot_be_removed_is_an_error(cluster: _Cluster) -> None:
    carrier = _carrier(cluster)
    await carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    cluster.failures = [("delete", "runtimeclasses", ForbiddenError("not yours"))]
    with pytest.raises(CarrierError, match=f"class {_CLASS} cannot be removed: not yours"):
        await carrier.remove_classes()


async def test_the_namespace_lets_privileged_pods_in_and_is_made_once(cluster: _Cluster) -> None:
    carrier = _carrier(cluster)
    for _ in range(2):
        await carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    (created,) = cluster.asked("create", NAMESPACES)
    labels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "warn")}
    assert created.body["metadata"] == {"name": _NS, "labels": labels}
    await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)


async def test_a_namespace_and_an_image_that_are_given_are_used(cluster: _Cluster) -> None:
    carrier = _carrier(cluster, namespace=_NS, has_namespace=True, image="mine:1")
    await carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert cluster.asked("create", NAMESPACES) == []
    (created,) = cluster.asked("create", PODS)
    assert created.body["spec"]["containers"][0]["image"] == "mine:1"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"devices": ("/dev/zero",)}, "a pod cannot name devices of its node"),
        ({"pids_limit": 1}, "a pod cannot limit its processes"),
    ],
)
async def test_what_no_pod_can_ask_for_is_not_tried(
    cluster: _Cluster, settings: dict[str, Any], error: str
) -> None:
    probe = ProbeContainer(image="probe:1", command=("/x",), **settings)
    result = await _carrier(cluster).run("crun", probe, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.error) == (Outcome.UNSUPPORTED, error)
    assert cluster.requests == []


async def test_a_pod_that_the_api_refuses_says_nothing_of_a_handler(cluster: _Cluster) -> None:
    cluster.failures = [("create", "pods", ForbiddenError("a policy\nforbids it"))]
    result = await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.error == "the API refuses the pod: a policy forbids it"


@pytest.mark.parametrize(
    "failure",
    [
        ("create", "namespaces", ForbiddenError("not yours")),
        ("create", "pods", UnreachableError("not yours")),
        ("get", "pods", UnreachableError("not yours")),
    ],
)
async def test_an_api_that_fails_says_nothing_of_a_handler(
    cluster: _Cluster, failure: tuple[str, str, Exception]
) -> None:
    cluster.failures = [failure]
    with pytest.raises(CarrierError, match="probe cannot be run: not yours"):
        await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert cluster.names(PODS) == []


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ({"containerStatuses": [_status(waiting={"reason": "CreateContainerError",
                                                 "message": "no\nprogram"})]},
         "CreateContainerError: no program"),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no"},
         "UnexpectedAdmissionError: no"),
    ],
)  # fmt: skip
async def test_a_container_that_is_not_started_is_refused(
    cluster: _Cluster, status: Json, error: str
) -> None:
    cluster.starts_as = status
    result = await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.error) == (Outcome.REFUSED, error)
    assert 0 < result.total_s < _DEADLINE_S


@pytest.mark.parametrize(
    "reason",
    ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
     "ImageInspectError"],
)  # fmt: skip
async def test_an_image_that_is_not_there_says_nothing_of_a_handler(
    cluster: _Cluster, reason: str
) -> None:
    waiting = _status(waiting={"reason": reason, "message": "gone"})
    cluster.starts_as = {"containerStatuses": [waiting]}
    with pytest.raises(CarrierError, match=f"image of a probe: {reason}: gone"):
        await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)


@pytest.mark.parametrize("reason", ["", "ContainerCreating", "PodInitializing"])
async def test_a_container_that_is_created_is_waited_for(cluster: _Cluster, reason: str) -> None:
    cluster.starts_as = {"containerStatuses": [_status(waiting={"reason": reason})]}
    cluster.follows = [_running(), _ended()]
    result = await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert result.is_success


async def test_an_event_that_refuses_the_sandbox_refuses_the_probe(cluster: _Cluster) -> None:
    cluster.starts_as = {"phase": "Pending"}
    cluster.refusal = {"reason": "FailedCreatePodSandBox", "message": "no handler x"}
    result = await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.error) == (Outcome.REFUSED, "no handler x")


async def test_a_pod_that_is_not_started_in_time_is_cut_off(cluster: _Cluster) -> None:
    cluster.starts_as = {"phase": "Pending"}
    result = await _carrier(cluster).run("crun", _PROBE, deadline_s=_SHORT_S)
    assert (result.outcome, result.error) == (
        Outcome.CUT_OFF, "it was not started within 0 s",
    )  # fmt: skip
    assert 0 < result.total_s < _DEADLINE_S
    assert cluster.names(PODS) == []


async def test_a_pod_that_does_not_end_is_cut_off_with_its_output(cluster: _Cluster) -> None:
    cluster.starts_as = _running()
    cluster.log = b"before"
    result = await _carrier(cluster).run("crun", _PROBE, deadline_s=0.3)
    assert (result.outcome, result.output) == (Outcome.CUT_OFF, "before")
    assert result.error == "it did not end within 0 s"
    assert 0 < result.start_s < result.total_s < _DEADLINE_S


async def test_a_log_that_cannot_be_read_says_nothing_of_a_handler(cluster: _Cluster) -> None:
    cluster.log = ForbiddenError("no logs")
    with pytest.raises(CarrierError, match="log of a probe cannot be read: no logs"):
        await _carrier(cluster).run("crun", _PROBE, deadline_s=_DEADLINE_S)


async def test_a_pod_that_others_delete_says_nothing_of_a_handler(cluster: _Cluster) -> None:
    cluster.starts_as = _running()
    async with _carrier(cluster).running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        cluster.drop(PODS, cluster.names(PODS)[0], _NS)
        with pytest.raises(CarrierError, match="pod of a probe cannot be watched"):
            await probe.ended(deadline_s=_DEADLINE_S)


async def test_a_command_in_a_container(cluster: _Cluster) -> None:
    cluster.starts_as = _running()
    failed = b'{"details":{"causes":[{"reason":"ExitCode","message":"4"}]}}'
    cluster.sockets["v5.channel.k8s.io"] = [
        b"\x01a", b"\x02" + b"b" * 70000, b"\x03" + failed,
    ]  # fmt: skip
    async with _carrier(cluster).running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        assert (probe.cgroup, probe.start_s > 0) == ("", True)
        result = await probe.exec(["id", "-u"], deadline_s=_DEADLINE_S)
        assert (result.outcome, result.exit_code) == (Outcome.ENDED, 4)
        assert (result.output[:2], len(result.output)) == ("ab", 65536)
        cluster.sockets["v5.channel.k8s.io"] = [b'\x03{"message":"no\\nshell"}']
        result = await probe.exec(["id"], deadline_s=_DEADLINE_S)
        assert (result.outcome, result.error) == (Outcome.REFUSED, "no shell")
    assert "command=id&command=-u" in cluster.paths[0]


async def test_a_resize_is_done_when_the_limits_are_in_force(cluster: _Cluster) -> None:
    cluster.starts_as = _running()
    async with _carrier(cluster).running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        (name,) = cluster.names(PODS)

        def report(limits: Json) -> None:
            status = {**_status(running={}), "resources": {"limits": limits}}
            pod = cluster.find(PODS, name, _NS)
            assert pod is not None
            others = {"name": "other", "resources": {"limits": {"cpu": "9"}}}
            cluster.put(
                PODS,
                {**pod, "status": {"phase": "Running", "containerStatuses": [others, status]}},
            )

        report({"cpu": "100m", "memory": "64"})
        result = await probe.resize(cpu_millis=1000, memory_bytes=96, deadline_s=_SHORT_S)
        assert (result.outcome, result.error) == (Outcome.CUT_OFF, "it did not end within 0 s")
        report({"cpu": "1", "memory": "96"})
        result = await probe.resize(cpu_millis=1000, memory_bytes=96, deadline_s=_DEADLINE_S)
        assert result.is_success
        assert 0 < result.total_s < _DEADLINE_S
    patch = cluster.asked("patch", PODS)[-1]
    amounts = {"cpu": "1000m", "memory": "96"}
    resources = {"limits": amounts, "requests": amounts}
    assert patch.body == {"spec": {"containers": [{"name": "probe", "resources": resources}]}}
    assert patch.more["subresource"] == "resize"


async def test_a_pod_is_not_checkpointed(cluster: _Cluster) -> None:
    cluster.starts_as = _running()
    async with _carrier(cluster).running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        result = await probe.checkpoint(deadline_s=_DEADLINE_S)
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.error == "pods are not checkpointed through the API"


@pytest.mark.parametrize(
    ("messages", "code", "output", "error"),
    [
        ([b"\x00\x50\x00", b"\x01\x50\x00", b"\x00moorage\n", None], 0, "moorage\n", ""),
        ([b"\x00\x50\x00", b"\x01\x50\x00", b"\x01no\nport"], 1, "", "no port"),
    ],
)
async def test_what_a_forwarded_port_sends(
    cluster: _Cluster, messages: list[bytes | None], code: int, output: str, error: str
) -> None:
    cluster.starts_as = _running()
    cluster.sockets["v4.channel.k8s.io"] = messages
    async with _carrier(cluster).running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        result = await probe.fetch(80, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.exit_code) == (Outcome.ENDED, code)
    assert (result.output, result.error) == (output, error)
    assert cluster.paths[0].endswith("/portforward?ports=80")


@pytest.mark.parametrize("step", ["exec", "resize", "fetch"])
@pytest.mark.parametrize("failure", ["refused", "hangs"])
async def test_a_step_that_is_refused_or_hangs(cluster: _Cluster, step: str, failure: str) -> None:
    cluster.starts_as = _running()
    is_refused = failure == "refused"
    answer: Any = ForbiddenError("not\nhere") if is_refused else [None]
    for protocol in ("v4.channel.k8s.io", "v5.channel.k8s.io"):
        cluster.sockets[protocol] = answer
    async with _carrier(cluster).running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        if is_refused:
            cluster.failures = [("patch", "pods", ForbiddenError("not\nhere"))]
        within_s = _DEADLINE_S if is_refused else _SHORT_S
        steps: dict[str, Callable[[], Any]] = {
            "exec": lambda: probe.exec(["id"], deadline_s=within_s),
            "resize": lambda: probe.resize(cpu_millis=1, memory_bytes=0, deadline_s=within_s),
            "fetch": lambda: probe.fetch(80, deadline_s=within_s),
        }
        result = await steps[step]()
    assert 0 < result.total_s < _DEADLINE_S
    expected = (
        (Outcome.REFUSED, "not here")
        if is_refused
        else (Outcome.CUT_OFF, "it did not end within 0 s")
    )
    assert (result.outcome, result.error) == expected


async def test_what_earlier_processes_left_is_removed_and_counted(cluster: _Cluster) -> None:
    for name in ("probe-a.n1", "probe-b.n1"):
        cluster.put(PODS, {"metadata": {"name": name, "namespace": _NS, "labels": _LABELS}})
    cluster.put(RUNTIME_CLASSES, {"metadata": {"name": "old", "labels": _LABELS}, "handler": "x"})
    carrier = _carrier(cluster)
    cluster.starts_as = _running()
    async with carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S):
        # What this process runs now is left alone.
        assert await carrier.clean() == 2
        assert len(cluster.names(PODS)) == 1
        assert cluster.names(RUNTIME_CLASSES) == [_CLASS]
    assert await carrier.clean() == 0
    assert cluster.names(RUNTIME_CLASSES) == []
    # Pods and classes of others are not even listed.
    for resource in (PODS, RUNTIME_CLASSES):
        listed = cluster.asked("list", resource)[0]
        assert listed.more["label_selector"] == f"{PROBE_LABEL}={_OWNER}"


async def test_leftovers_that_cannot_be_removed_are_an_error(cluster: _Cluster) -> None:
    cluster.failures = [("list", "pods", UnreachableError("down"))]
    with pytest.raises(CarrierError, match="earlier probes cannot be removed: down"):
        await _carrier(cluster).clean()


async def test_a_kept_probe_that_is_refused_says_why(cluster: _Cluster) -> None:
    cluster.starts_as = {"phase": "Failed", "reason": "No", "message": "room"}
    with pytest.raises(ProbeRefusedError, match="No: room"):
        async with _carrier(cluster).running("crun", _PROBE, deadline_s=_DEADLINE_S):
            pass
