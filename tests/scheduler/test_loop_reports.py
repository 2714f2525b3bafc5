"""What the scheduler writes and when it wakes: each write once, each event for whom it helps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.meta import ObjectMeta
from moorage.api.names import Namespace
from moorage.scheduler import status
from moorage.scheduler.messages import event_note
from tests.scheduler.fake_client import FakeClient
from tests.scheduler.objects import a_node, a_pod, anti_affinity, pod_affinity
from tests.scheduler.test_loop import a_client, condition, scheduling


def statuses(client: FakeClient, name: str) -> list[dict[str, Any]]:
    return [patch.get("status", {}) for written, patch in client.patches if written == name]


async def test_the_same_refusal_is_written_once() -> None:
    async with scheduling(a_client(a_node("n1", cpu="1"), a_pod("p", cpu="2"))) as client:
        await client.until_event("p", "FailedScheduling")
        await client.until(lambda: condition(client.pod("p")))
        for number in range(3):
            # Each change of the pod is another attempt with the same result.
            client.put(a_pod("p", cpu="2", labels={"n": str(number)},
                             status=_status_of(client, "p")))  # fmt: skip
            client.put(a_pod(f"q{number}"))
            await client.until_bound(f"q{number}")
        assert len(statuses(client, "p")) == 1


def _status_of(client: FakeClient, name: str) -> dict[str, Any]:
    return dict(msgspec.to_builtins(client.pod(name).status))


async def test_a_refusal_that_is_shown_already_is_not_written_after_a_restart() -> None:
    first = a_client(a_node("n1", cpu="1"), a_pod("p", cpu="2"))
    async with scheduling(first):
        await first.until(lambda: condition(first.pod("p")))
    second = a_client(a_node("n1", cpu="1"),
                      a_pod("p", cpu="2", status=_status_of(first, "p")))  # fmt: skip
    async with scheduling(second) as client:
        await client.until_event("p", "FailedScheduling")
        client.put(a_pod("q"))
        await client.until_bound("q")
        assert statuses(client, "p") == []


async def test_another_reason_is_written_though_one_is_shown() -> None:
    shown = {"conditions": [{"type": "PodScheduled", "status": "False",
                             "reason": "Unschedulable", "message": "older"}]}  # fmt: skip
    client = a_client(a_node("n1", cpu="1"), a_pod("p", cpu="2", status=shown))
    async with scheduling(client):
        await client.until(lambda: statuses(client, "p"))
        scheduled = condition(client.pod("p"))
        assert scheduled is not None
        assert scheduled[2].startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_a_nominated_pod_gives_way_to_a_more_important_one() -> None:
    victim = a_pod("victim", cpu="2", node="n1", priority=1)
    client = a_client(a_node("n1", cpu="2"), victim, a_pod("middle", cpu="2", priority=50))
    client.keeps_victims = True
    async with scheduling(client):
        await client.until(lambda: client.deleted == ["victim"])
        await client.until(lambda: client.pod("middle").status.nominated_node_name == "n1")
        client.put(a_pod("boss", cpu="2", priority=100))
        await client.until(lambda: client.pod("boss").status.nominated_node_name == "n1")
        await client.until(lambda: client.pod("middle").status.nominated_node_name == "")
        withdrawn = next(
            patch for name, patch in client.patches
            if name == "middle" and patch.get("status") == {"nominatedNodeName": None}
        )  # fmt: skip
        assert withdrawn["metadata"] == {"uid": "uid-middle"}
        client.remove(client.pod("victim"))
        assert await client.until_bound("boss") == "n1"


async def test_new_labels_of_a_placed_pod_wake_those_that_look_for_them() -> None:
    near = a_pod("near", affinity=pod_affinity({"app": "db"}))
    other = a_pod("other", node="n2")
    async with scheduling(a_client(a_node("n1"), a_node("n2"), other, near)) as client:
        await client.until_event("near", "FailedScheduling")
        client.put(a_pod("other", node="n2", labels={"app": "db"}))
        assert await client.until_bound("near") == "n2"


async def test_a_placed_pod_that_asks_for_less_makes_room() -> None:
    big = a_pod("big", cpu="2", node="n1")
    async with scheduling(a_client(a_node("n1", cpu="2"), big, a_pod("p", cpu="1"))) as client:
        await client.until_event("p", "FailedScheduling")
        client.put(a_pod("big", cpu="1", node="n1"))
        assert await client.until_bound("p") == "n1"


async def test_a_pod_of_a_node_that_has_gone_is_in_the_way_until_it_is_removed() -> None:
    apart = anti_affinity({"app": "db"}, "zone")
    nodes = [a_node("n1", labels={"zone": "a"}), a_node("n2", labels={"zone": "a"})]
    db = a_pod("db", node="n1", labels={"app": "db"})
    async with scheduling(a_client(*nodes, db, a_pod("p", affinity=apart))) as client:
        await client.until_event("p", "FailedScheduling")
        client.remove(nodes[0])
        client.remove(db)
        assert await client.until_bound("p") == "n2"


async def test_a_refused_binding_frees_the_room_for_others() -> None:
    client = a_client(a_node("n1", cpu="1"), a_pod("p", cpu="1"))
    client.refused.add("p")
    async with scheduling(client):
        await client.until_event("p", "FailedScheduling")
        result = [status for status in statuses(client, "p") if status.get("conditions")]
        shown = result[0]["conditions"][0]
        assert (shown["type"], shown["status"], shown["reason"]) == (
            "PodScheduled", "False", status.SCHEDULER_ERROR,
        )  # fmt: skip
        assert await client.until_bound("p") == "n1"


@pytest.mark.parametrize(("length", "kept"), [(1023, 1023), (1024, 1024), (1025, 1024)])
def test_an_events_note_is_cut_at_what_it_may_hold(length: int, kept: int) -> None:
    note = event_note("x" * length)
    assert len(note) == kept
    assert note.endswith(" ...") is (length > 1024)


async def test_a_waiting_pod_that_is_given_to_another_scheduler_is_left_to_it() -> None:
    async with scheduling(a_client(a_node("n1", cpu="1"), a_pod("p", cpu="2"))) as client:
        await client.until_event("p", "FailedScheduling")
        client.put(a_pod("p", cpu="2", schedulerName="someone-else"))
        client.put(a_node("n2", cpu="4"), a_pod("q", cpu="2"))
        assert await client.until_bound("q") == "n2"
        assert not client.pod("p").spec.node_name


async def test_room_kept_for_a_pod_is_free_when_it_is_placed_elsewhere_before_it_is_bound() -> None:
    client = a_client(
        a_node("n1", cpu="2"),
        a_pod("leaving", cpu="2", node="n1", priority=1),
        a_pod("boss", cpu="2", priority=100),
    )
    client.keeps_victims = True
    async with scheduling(client):
        await client.until(lambda: client.deleted == ["leaving"])
        # Its node is taken by a pod that came from elsewhere, and another node appears.
        client.put(a_pod("taker", cpu="2", node="n1", priority=200))
        client.remove(client.pod("leaving"))
        client.slow.add("boss")
        client.put(a_node("n2", cpu="2"))
        await client.until(lambda: "boss" in client.waiting)
        client.put(a_pod("next", cpu="2", priority=50))
        await client.until_event("next", "FailedScheduling")
        client.remove(client.pod("taker"))
        assert await client.until_bound("next") == "n1"
        assert not client.pod("boss").spec.node_name


async def test_a_namespace_that_has_gone_is_matched_by_no_selector() -> None:
    rule: dict[str, Any] = anti_affinity({"app": "db"})
    term = rule["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["namespaceSelector"] = {"matchLabels": {"team": "a"}}
    space = Namespace(metadata=ObjectMeta(name="data", labels={"team": "a"}))
    db = a_pod("db", namespace="data", node="n1", labels={"app": "db"})
    async with scheduling(a_client(space, a_node("n1"), db, a_pod("p", affinity=rule))) as client:
        await client.until_event("p", "FailedScheduling")
        client.remove(space)
        assert await client.until_bound("p") == "n1"


async def test_a_pod_that_gives_way_preempts_on_another_node_at_once() -> None:
    client = a_client(
        a_node("n1", cpu="2"),
        a_node("n2", cpu="2"),
        a_pod("victim", cpu="2", node="n1", priority=1),
        a_pod("other", cpu="2", node="n2", priority=2),
        a_pod("middle", cpu="2", priority=50),
    )
    client.keeps_victims = True
    async with scheduling(client):
        await client.until(lambda: client.pod("middle").status.nominated_node_name == "n1")
        client.put(a_pod("boss", cpu="2", priority=100))
        await client.until(lambda: client.pod("boss").status.nominated_node_name == "n1")
        await client.until(lambda: client.pod("middle").status.nominated_node_name == "n2")
        await client.until(lambda: "other" in client.deleted)


async def test_a_condition_is_written_with_all_that_its_readers_expect() -> None:
    """kubectl and controllers compare these fields; a probe time that was there is removed."""
    client = a_client(a_node("n1", cpu="1"), a_pod("p", cpu="2"))
    async with scheduling(client):
        await client.until(lambda: statuses(client, "p"))
        (written,) = statuses(client, "p")[0]["conditions"]
        assert written["message"].startswith("0/1 nodes are available")
        assert written["lastTransitionTime"]
        del written["message"], written["lastTransitionTime"]
        assert written == {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastProbeTime": None,
        }


async def test_failed_victim_deletion_is_retried() -> None:
    client = a_client(
        a_node("n1", cpu="2"),
        a_pod("victim", cpu="2", node="n1", priority=1),
        a_pod("boss", cpu="2", priority=100),
    )
    client.undeletable.add("victim")
    async with scheduling(client):
        assert await client.until_bound("boss") == "n1"
        assert client.deleted == ["victim"]
        assert "uid-boss" in await client.until_event("victim", "Preempted")


class Always(set[str]):
    """A set that forgets nothing."""

    def discard(self, _name: object) -> None:
        """Keep it."""


async def test_pod_with_a_refused_binding_is_not_reported_as_scheduled() -> None:
    client = a_client(a_node("n1", cpu="1"), a_pod("p", cpu="1"))
    client.refused = Always({"p"})
    async with scheduling(client):
        await client.until_event("p", "FailedScheduling")
        client.remove(client.pod("p"))
        client.put(a_pod("q", cpu="1"))
        await client.until_event("q", "Scheduled")
        assert {why for _, why, _ in client.events_about("p")} == {"FailedScheduling"}
