"""Whole pod lives: from the pod's binding to its last trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.pods import Pod
from moorage.node.status.inputs import TerminationReason
from tests.node.objects import UID, a_pod, wire_container
from tests.node.pods.lives import Life, living


def calls(life: Life, *kinds: str) -> list[str]:
    return [call for call in life.engine.calls if call.split()[0] in kinds]


def phase(life: Life) -> str:
    return "" if life.api.pod is None else life.api.pod.status.phase


def is_gone(life: Life) -> Any:
    return life.task is not None and life.task.done()


async def test_a_pod_that_runs_until_it_is_deleted(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(terminationGracePeriodSeconds=9))
        await life.until(lambda: phase(life) == "Running")
        assert life.api.pod is not None
        assert life.api.pod.status.pod_ip.startswith("10.1.0.")
        life.ask_to_delete(grace_s=9)
        await life.until(lambda: is_gone(life))
        assert life.engine.calls == [
            "run_sandbox",
            "create app",
            "start app",
            "stop app 9",
            "stop_sandbox s1",
            "remove_sandbox s1",
        ]
        assert life.events.reasons == ["Pulled", "Created", "Started", "Killing"]
        assert life.api.phases == ["Pending", "Running", "Failed"]
        assert life.engine.is_empty
        assert list((tmp_path / "pods").iterdir()) == []


async def test_a_pod_begins_when_it_gets_room(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        life.worker.wait_for_room(TerminationReason("OutOfcpu", "cpu is taken"))
        assert life.worker.is_waiting
        await life.look()
        assert life.engine.calls == []
        assert life.waiting() == "ContainerCreating"
        assert life.api.pod is not None
        (status,) = life.api.pod.status.container_statuses
        assert status.state.waiting is not None
        assert status.state.waiting.message == (
            "waiting for pods that have ended to be removed from the node: cpu is taken"
        )
        life.worker.grant_room()
        assert not life.worker.is_waiting
        await life.until(lambda: phase(life) == "Running")


async def test_a_pod_that_waits_for_room_can_be_deleted(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        life.worker.wait_for_room(TerminationReason("OutOfcpu", "cpu is taken"))
        await life.look()
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))
        assert calls(life, "run_sandbox", "create", "start") == []


async def test_a_pod_is_shown_until_its_phase_is_final_and_active_until_it_is_stopped(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as life:
        seen: list[tuple[str, bool, bool]] = []

        forward = life.api.on_change

        def record(pod: Pod | None) -> None:
            forward(pod)
            worker = life.worker
            seen.append((worker.status.phase, worker.is_shown, worker.is_active))

        life.begin(a_pod(restartPolicy="Never"))
        life.api.on_change = record
        await life.until(lambda: phase(life) == "Running")
        life.engine.end("app", 0)
        await life.look()
        await life.until(lambda: not life.worker.is_active)
        record(life.api.pod)
        assert seen[-1] == ("Succeeded", False, False)
        assert ("Running", True, True) in seen
        assert not any(phase_ == "Succeeded" and is_shown for phase_, is_shown, _ in seen)
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))


async def test_a_pod_that_was_removed_by_force_is_active_and_not_shown(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        await life.until(lambda: phase(life) == "Running")
        assert life.worker.is_shown
        life.worker.remove()
        assert life.worker.is_active
        assert not life.worker.is_shown
        await life.until(lambda: is_gone(life))
        assert not life.worker.is_active


async def test_a_job_that_succeeds_stays_for_its_status(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(restartPolicy="Never"))
        await life.until(lambda: phase(life) == "Running")
        life.engine.end("app", 0)
        await life.look()
        await life.until(lambda: phase(life) == "Succeeded")
        assert life.api.pod is not None
        (status,) = life.api.pod.status.container_statuses
        assert status.state.terminated is not None
        assert status.state.terminated.reason == "Completed"
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))
        assert life.api.phases[-1] == "Succeeded"


def has_started(life: Life, times: int) -> bool:
    return len(calls(life, "start")) == times


async def test_a_container_that_crashes_comes_back_later_and_later(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        for count in range(3):
            await life.until(partial(has_started, life, count + 1))
            life.engine.end("app", 1)
            begun_s = life.clock.monotonic()
            await life.look()
            if count:
                await life.until(lambda: life.waiting() == "CrashLoopBackOff", most_s=1)
                await life.until(partial(has_started, life, count + 2))
                assert life.clock.monotonic() - begun_s == 10 * count
        assert life.api.pod is not None
        assert any(
            message.startswith("BackOff: app: Back-off restarting")
            for message in life.events.recorded
        )


async def test_init_containers_sidecars_and_main_ones_in_their_order(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(
            a_pod(
                initContainers=[
                    wire_container("init"),
                    wire_container("side", restartPolicy="Always"),
                ],
                restartPolicy="Never",
            )
        )
        await life.until(lambda: life.engine.running == ["init"])
        life.engine.end("init")
        await life.look()
        await life.until(lambda: life.engine.running == ["side", "app"])
        life.engine.end("app")
        await life.look()
        await life.until(lambda: phase(life) == "Succeeded")
        assert calls(life, "start") == ["start init", "start side", "start app"]
        assert calls(life, "stop") == ["stop side 30"]


async def test_main_containers_end_before_their_sidecars(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        sidecars = [wire_container(name, restartPolicy="Always") for name in ("s1", "s2")]
        life.begin(a_pod(initContainers=sidecars))
        await life.until(lambda: phase(life) == "Running")
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))
        assert [call.split()[1] for call in calls(life, "stop")] == ["app", "s2", "s1"]


async def test_hooks(tmp_path: Path) -> None:
    lifecycle = {
        "postStart": {"exec": {"command": ["hello"]}},
        "preStop": {"exec": {"command": ["bye"]}},
    }
    async with living(tmp_path) as life:
        life.begin(a_pod(wire_container(lifecycle=lifecycle)))
        await life.until(lambda: phase(life) == "Running")
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))
        assert calls(life, "start", "exec", "stop") == [
            "start app",
            "exec app hello",
            "exec app bye",
            "stop app 30",
        ]


async def test_a_sandbox_that_dies_is_stopped_and_replaced(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        await life.until(lambda: phase(life) == "Running")
        life.engine.kill_sandbox()
        await life.look()
        await life.until(lambda: life.engine.running == ["app"])
        assert calls(life, "run_sandbox", "stop_sandbox") == [
            "run_sandbox",
            "stop_sandbox s1",
            "run_sandbox",
        ]
        assert "SandboxChanged" in life.events.reasons


@pytest.mark.parametrize("is_removed", [False, True])
async def test_nothing_is_started_in_a_sandbox_that_was_stopped_from_outside(
    tmp_path: Path, is_removed: bool
) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        await life.until(lambda: phase(life) == "Running")
        container = life.observer.view(UID).containers[0]
        life.engine.kill_sandbox()
        if is_removed:
            await life.engine.remove_sandbox(container.sandbox_id)
        # The container's end is reported before its sandbox's.
        ended = await life.observer.refresh_container(container.id, container.sandbox_id)
        assert is_removed == (ended is None)
        await life.look()
        await life.until(lambda: life.engine.running == ["app"])
        started = calls(life, "run_sandbox", "create", "start")
        assert started == ["run_sandbox", "create app", "start app"] * 2
        assert not any(message.startswith("Failed") for message in life.events.recorded)


async def test_start_is_repeated_when_its_sandbox_was_stopped(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as life:
        life.engine.stops_sandbox_at_start = True
        life.begin(a_pod())
        await life.until(lambda: life.engine.running == ["app"])
        assert calls(life, "run_sandbox", "start") == [
            "run_sandbox", "start app", "run_sandbox", "start app",
        ]  # fmt: skip


async def test_a_class_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(runtimeClassName="fast"))
        await life.until(lambda: "FailedCreatePodSandBox" in life.events.reasons)
        assert life.events.recorded[0].startswith(
            "FailedCreatePodSandBox: Failed to create pod sandbox: "
            'runtimeclass.node.k8s.io "fast" not found'
        )
        await life.until(lambda: phase(life) == "Pending")
        life.api.add_class("fast", "crun")
        life.worker.retry_sandbox()
        await life.until(lambda: phase(life) == "Running")
        assert calls(life, "run_sandbox") == ["run_sandbox crun"]


async def test_missing_handler_is_reported_with_what_to_do(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.api.add_class("odd", "unconfigured")
        life.begin(a_pod(runtimeClassName="odd"))
        await life.until(lambda: "FailedCreatePodSandBox" in life.events.reasons)
        message = life.events.recorded[0]
        assert 'no runtime for "unconfigured" is configured' in message
        assert 'RuntimeClass "odd" asks for handler "unconfigured" on node n1' in message
        assert "the engine offers crun" in message


async def test_a_pod_deleted_before_it_began_leaves_nothing(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))
        assert calls(life, "create") == []


async def test_a_deadline_ends_the_pod(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(activeDeadlineSeconds=60))
        await life.until(lambda: phase(life) == "Running")
        await life.until(lambda: phase(life) == "Failed")
        assert life.api.pod is not None
        assert life.api.pod.status.reason == "DeadlineExceeded"
        assert 60 <= life.clock.monotonic() < 62


# The agent restarts


async def test_a_new_agent_takes_over_what_runs(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        await life.until(lambda: phase(life) == "Running")
        before = list(life.engine.calls)
        await life.restart_agent()
        await life.until(lambda: life.worker.status.phase == "Running")
        assert life.engine.calls == before
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))
        assert life.engine.is_empty


async def test_a_job_that_ended_while_no_agent_looked_is_reported(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(restartPolicy="Never"))
        await life.until(lambda: phase(life) == "Running")
        life.engine.end("app", 3)
        # The plan finds out before the API's answer does, in the step that begins the volumes.
        life.api.order = 50
        await life.restart_agent()
        await life.until(lambda: phase(life) == "Failed")
        assert life.api.pod is not None
        (status,) = life.api.pod.status.container_statuses
        assert status.state.terminated is not None
        assert status.state.terminated.exit_code == 3
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))
        assert life.engine.is_empty


async def test_container_that_an_agent_only_created_is_created_again(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.engine.failing["start"] = "interrupted"
        life.begin(a_pod())
        await life.until(lambda: life.waiting() == "RunContainerError")
        del life.engine.failing["start"]
        await life.restart_agent()
        await life.until(lambda: phase(life) == "Running")
        assert life.api.pod is not None
        assert life.api.pod.status.container_statuses[0].restart_count == 0


async def test_impatience_shortens_the_end(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        lifecycle = {"preStop": {"sleep": {"seconds": 1000}}}
        life.begin(a_pod(wire_container(lifecycle=lifecycle)))
        await life.until(lambda: phase(life) == "Running")
        life.ask_to_delete(grace_s=500)
        await life.until(lambda: "Killing" in life.events.reasons)
        life.ask_to_delete(grace_s=1)
        await life.until(lambda: is_gone(life), most_s=20)
        assert calls(life, "stop") == ["stop app 2"]


async def test_a_pod_that_the_node_cannot_keep_is_evicted_once(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        await life.until(lambda: phase(life) == "Running")
        assert life.worker.is_active
        assert life.worker.evict(TerminationReason("Evicted", "too much"))
        assert not life.worker.evict(TerminationReason("Evicted", "again"))
        await life.until(lambda: phase(life) == "Failed")
        assert life.api.pod is not None
        assert (life.api.pod.status.reason, life.api.pod.status.message) == ("Evicted", "too much")
        assert [message for message in life.events.recorded if "Evicted" in message] == [
            "Evicted: too much"
        ]
        await life.until(lambda: not life.worker.is_active)
        assert not life.worker.evict(TerminationReason("Evicted", "late"))


async def test_what_is_known_of_a_pod_goes_with_it(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        forgotten: list[str] = []
        context = life.context
        for name in ("writer", "images", "classes"):
            part: Any = getattr(context, name)
            object.__setattr__(part, "forget", lambda uid, name=name: forgotten.append(name + uid))
        context.metrics.probes.count(pod_uid=UID, probe_type="Liveness", container="app",
                                     namespace="shop", pod="web", result="x")  # fmt: skip
        life.begin(a_pod())
        await life.until(lambda: phase(life) == "Running")
        life.ask_to_delete()
        await life.until(lambda: is_gone(life))
        assert forgotten == [f"writer{UID}", f"images{UID}", f"classes{UID}"]
        assert not [line for line in context.metrics.probes.lines() if UID in line]


async def test_changed_labels_refresh_the_volumes_at_once(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        await life.until(lambda: phase(life) == "Running")
        refreshed: list[float] = []

        async def refresh(*_: Any) -> None:
            refreshed.append(life.clock.monotonic())

        life.context.volumes.refresh = refresh  # type: ignore[method-assign,assignment]  # it counts
        assert life.api.pod is not None
        begun_s = life.clock.monotonic()
        for field in ("labels", "annotations"):
            meta = msgspec.structs.replace(life.api.pod.metadata, **{field: {"a": "b"}})
            life.api.put(msgspec.structs.replace(life.api.pod, metadata=meta))
            count = len(refreshed)

            def is_refreshed(before: int = count) -> bool:
                return len(refreshed) > before

            await life.until(is_refreshed, most_s=5)
        assert life.clock.monotonic() - begun_s < 5


def resized(pod: Pod, **resources: Any) -> Pod:
    wire = msgspec.to_builtins(pod)
    wire["spec"]["containers"][0]["resources"] = resources
    wire["metadata"]["generation"] = pod.metadata.generation + 1
    return msgspec.convert(wire, Pod)


SMALL = {"requests": {"cpu": "1", "memory": "8Mi"}, "limits": {"memory": "16Mi"}}


def conditions(life: Life) -> dict[str, str]:
    assert life.api.pod is not None
    return {
        condition.type: condition.reason
        for condition in life.api.pod.status.conditions
        if "Resize" in condition.type
    }


def shown(life: Life) -> Any:
    assert life.api.pod is not None
    (status,) = life.api.pod.status.container_statuses
    return None if status.resources is None else msgspec.to_builtins(status.resources)


async def test_a_running_container_is_resized(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(wire_container(resources=SMALL)))
        await life.until(lambda: phase(life) == "Running")
        assert life.api.pod is not None
        large = {"requests": {"cpu": "2", "memory": "8Mi"}, "limits": {"memory": "32Mi"}}
        life.api.put(resized(life.api.pod, **large))
        assert life.worker.wants_resize
        life.worker.grant_resize()
        assert not life.worker.wants_resize
        await life.until(lambda: shown(life) == large)
        assert calls(life, "update") == [f"update app 2048 {32 << 20}"]
        assert life.events.reasons[-2:] == ["ResizeStarted", "ResizeCompleted"]
        assert conditions(life) == {}
        await life.restart_agent()
        await life.until(lambda: shown(life) == large)
        assert calls(life, "update") == [f"update app 2048 {32 << 20}"]


async def test_a_container_restarts_for_a_resize_without_a_pause(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
        life.begin(a_pod(wire_container(resources=SMALL, resizePolicy=policy),
                         restartPolicy="OnFailure"))  # fmt: skip
        for times, memory in enumerate(("9Mi", "10Mi", "11Mi"), start=2):
            await life.until(partial(has_started, life, times - 1))
            await life.until(lambda: phase(life) == "Running")
            assert life.api.pod is not None
            wanted = {"requests": {"cpu": "1", "memory": memory}, "limits": {"memory": "16Mi"}}
            life.api.put(resized(life.api.pod, **wanted))
            life.worker.grant_resize()
            await life.until(partial(has_started, life, times), most_s=2)
            await life.until(partial(lambda wanted: shown(life) == wanted, wanted))
        assert calls(life, "update") == []
        assert life.api.phases == ["Pending", "Running"]


async def test_a_resize_that_fails_is_reported_and_tried_again(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(wire_container(resources=SMALL)))
        await life.until(lambda: phase(life) == "Running")
        assert life.api.pod is not None
        life.engine.usage["app"] = 12 << 20
        less = {"requests": {"cpu": "1", "memory": "8Mi"}, "limits": {"memory": "10Mi"}}
        life.api.put(resized(life.api.pod, **less))
        life.worker.grant_resize()
        await life.until(lambda: conditions(life) == {"PodResizeInProgress": "Error"})
        assert shown(life) == SMALL
        assert life.events.recorded[-1].endswith(
            '"error":"cannot decrease memory limits: attempting to set container \\"app\\" memory '
            'limit (10485760) below current usage (12582912)"}'
        )
        life.engine.usage["app"] = 4 << 20
        await life.until(lambda: shown(life) == less)
        assert conditions(life) == {}


async def test_a_resize_that_waits_changes_nothing(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(wire_container(resources=SMALL)))
        await life.until(lambda: phase(life) == "Running")
        before = life.api.pod
        assert before is not None
        life.api.put(resized(before, requests={"cpu": "64"}))
        life.worker.defer_resize(TerminationReason("OutOfcpu", "no room"))
        await life.until(lambda: conditions(life) == {"PodResizePending": "Deferred"})
        assert shown(life) == SMALL
        await life.restart_agent()
        await life.until(lambda: life.worker.wants_resize)
        assert conditions(life) == {"PodResizePending": "Deferred"}
        assert life.api.pod is not None
        life.api.put(resized(life.api.pod, **SMALL))
        await life.until(lambda: conditions(life) == {})
        assert calls(life, "update") == []


async def test_a_critical_pod_is_not_evicted(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(priority=2_000_000_000))
        await life.until(lambda: phase(life) == "Running")
        assert not life.worker.evict(TerminationReason("Evicted", "too much"))
        assert life.worker.is_live


async def test_a_pod_ends_with_the_host_a_critical_one_too(tmp_path: Path) -> None:
    why = TerminationReason("Terminated", "The host goes.", is_disruption=True)
    async with living(tmp_path) as life:
        life.begin(a_pod(priority=2_000_000_000))
        await life.until(lambda: phase(life) == "Running")
        assert life.worker.terminate(why, grace_s=5)
        assert not life.worker.terminate(why, grace_s=5)
        await life.until(lambda: phase(life) == "Failed")
        assert life.api.pod is not None
        status = life.api.pod.status
        assert (status.reason, status.message) == ("Terminated", "The host goes.")
        (disruption,) = [one for one in status.conditions if one.type == "DisruptionTarget"]
        assert (disruption.status, disruption.reason) == ("True", "TerminationByKubelet")
        assert not any("Terminated" in message for message in life.events.recorded)
