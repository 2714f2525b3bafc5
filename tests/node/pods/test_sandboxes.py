"""Why a pod has no sandbox: the reason, the text and the metric of each failure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.linux.cgroups import Cgroups, Layout
from moorage.node.pod_facts.errors import SyncError
from moorage.node.pods.handler_choice import (
    CLASS_NOT_FOUND,
    CLASS_UNREADABLE,
    HANDLER_UNKNOWN,
    HandlerError,
)
from moorage.node.pods.sandboxes import SandboxMaker
from moorage.runtimeclass.validation import ClassMissing
from tests.node.objects import a_pod, a_view
from tests.node.pods.lives import Life, living

POD = a_pod(runtimeClassName="fast")


class FakeClasses:
    """Give one handler, or fail."""

    def __init__(self, answer: str | Exception) -> None:
        self._answer = answer

    async def handler(self, *_: Any) -> str:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def named_by(self, _: Any) -> str:
        return "fast"

    def is_gone(self, _: Any) -> bool:
        return False

    def replacing_handler(self, *_: Any) -> None:
        return None


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Life]:
    async with living(tmp_path) as life:
        worker: Any = SimpleNamespace(wake=lambda: None)
        life.worker = worker
        yield life


def maker(life: Life, answer: str | Exception = "crun") -> SandboxMaker:
    classes: Any = FakeClasses(answer)
    return replace(life.context.sandboxes, classes=classes)


def counted(sandboxes: SandboxMaker) -> list[str]:
    lines = sandboxes.metrics.text(["kubelet_started_pods", "kubelet_run_podsandbox_errors"])
    return [line for line in lines.splitlines() if not line.startswith("#") and line]


async def test_a_sandbox_is_counted_as_a_start(life: Life) -> None:
    sandboxes = maker(life)
    sandbox = await sandboxes.create(POD, a_view(), 0)
    assert sandbox.handler == "crun"
    assert [line for line in counted(sandboxes) if "errors" not in line] == [
        "kubelet_started_pods_total 1"
    ]
    assert "kubelet_started_pods_errors_total 1" not in counted(sandboxes)


@pytest.mark.parametrize(
    ("answer", "reason", "message"),
    [
        (HandlerError(CLASS_NOT_FOUND, str(ClassMissing("fast"))), "RuntimeClassNotFound",
         'runtimeclass.node.k8s.io "fast" not found (the pod waits on node n1 for RuntimeClass '
         '"fast": create it, or delete the pod)'),
        (HandlerError(CLASS_UNREADABLE, "no answer"), "RuntimeClassUnreadable", "no answer"),
        (HandlerError(HANDLER_UNKNOWN, "no record"), "RuntimeHandlerUnknown", "no record"),
        (OSError(28, "disk full"), "RuntimeHandlerNotRecorded",
         "the pod's runtime handler cannot be recorded: [Errno 28] disk full"),
        ("unknown", "SandboxRefused",
         'RuntimeClass "fast" asks for handler "unknown" on node n1; the engine offers crun: '
         "configure unknown, or use a class this node can run"),
    ],
)  # fmt: skip
async def test_each_failure_has_its_reason_and_is_counted(
    life: Life, answer: str | Exception, reason: str, message: str
) -> None:
    sandboxes = maker(life, answer)
    with pytest.raises(SyncError) as failure:
        await sandboxes.create(POD, a_view(), 0)
    assert failure.value.reason == reason
    assert message in str(failure.value)
    assert "kubelet_started_pods_total 1" in counted(sandboxes)
    assert "kubelet_started_pods_errors_total 1" in counted(sandboxes)
    is_engines = reason == "SandboxRefused"
    assert any('runtime_handler="unknown"' in line for line in counted(sandboxes)) is is_engines


async def test_failed_configuration_is_counted(life: Life, tmp_path: Path) -> None:
    sandboxes = maker(life)
    options = replace(sandboxes.options, resolv_conf=tmp_path / "absent")
    with pytest.raises(SyncError) as failure:
        await replace(sandboxes, options=options).create(POD, a_view(), 0)
    assert failure.value.reason == "SandboxConfigError"
    assert "absent" in str(failure.value)
    assert "kubelet_started_pods_errors_total 1" in counted(sandboxes)
    assert life.engine.calls == []


async def test_a_sandbox_under_another_handler_is_stopped(life: Life) -> None:
    life.engine.runs_everything_under = "runc"
    sandboxes = maker(life)
    with pytest.raises(SyncError) as failure:
        await sandboxes.create(POD, a_view(), 0)
    assert failure.value.reason == "WrongRuntimeHandler"
    assert [call.partition(" ")[0] for call in life.engine.calls] == ["run_sandbox", "stop_sandbox"]
    assert "kubelet_started_pods_errors_total 1" in counted(sandboxes)


@pytest.mark.parametrize("limits", [{}, {"memory": "64Mi"}])
async def test_a_guest_outside_of_its_pods_cgroup_is_said_on_the_pod(
    life: Life, tmp_path: Path, limits: dict[str, str]
) -> None:
    root = tmp_path / "cgroups"
    cgroups = Cgroups(Layout.V2, unified=root, v2=("memory",), hierarchies=(root,))
    pod = a_pod({"name": "a", "resources": {"limits": limits}}, runtimeClassName="fast")
    inside = await replace(maker(life), cgroups=cgroups).create(pod, a_view(), 0)
    assert not life.events.recorded
    (root / "kata_overhead" / inside.id).mkdir(parents=True)
    await replace(maker(life), cgroups=cgroups)._warn_of_guest(pod, inside.id, "crun")
    (event,) = [str(event) for event in life.events.recorded]
    assert "GuestOutsidePodCgroup" in event
    assert f"/kata_overhead/{inside.id}, outside the pod's cgroup" in event
    assert "sandbox_cgroup_only = true in Kata's configuration.toml on node n1" in event
    assert ("the pod's limits do not bind it" in event) is bool(limits)
