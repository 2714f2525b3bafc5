from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.pods import Pod
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.query import QueryCache
from tests.scheduler.objects import ZONE, a_cluster, a_node, a_pod, pod_affinity


def assume(state: ClusterState, name: str, node: str, cpu: str = "1") -> None:
    pod = a_pod(name, cpu=cpu)
    state.assume(pod, QueryCache().of_waiting(pod, lambda _: None), node)


def used(state: ClusterState, node: str = "n1") -> int:
    return state.nodes[node].used.get("cpu", 0)


def test_an_assumed_pod_counts_at_once_and_only_once() -> None:
    state = a_cluster(a_node("n1"))
    assume(state, "a", "n1")
    assert used(state) == 1000
    state.set_pod(a_pod("a", cpu="1", node="n1"))
    assert used(state) == 1000
    assert not state.is_assumed("default/a")


def test_an_assumed_pod_that_was_not_bound_gives_its_room_back() -> None:
    state = a_cluster(a_node("n1"))
    assume(state, "a", "n1")
    assert state.forget("default/a")
    assert used(state) == 0
    assert not state.forget("default/a")


def test_a_confirmed_pod_is_not_forgotten() -> None:
    state = a_cluster(a_node("n1"))
    assume(state, "a", "n1")
    state.set_pod(a_pod("a", cpu="1", node="n1"))
    assert not state.forget("default/a")
    assert used(state) == 1000


def test_a_pod_bound_elsewhere_than_assumed_moves() -> None:
    state = a_cluster(a_node("n1"), a_node("n2"))
    assume(state, "a", "n1")
    state.set_pod(a_pod("a", cpu="1", node="n2"))
    assert (used(state, "n1"), used(state, "n2")) == (0, 1000)


def test_ended_pods_use_no_resources() -> None:
    state = a_cluster(a_node("n1"), a_pod("a", cpu="1", node="n1", phase="Running"))
    state.set_pod(a_pod("a", cpu="1", node="n1", phase="Succeeded"))
    assert used(state) == 0


def test_pods_of_a_node_not_seen_yet_count_when_it_comes() -> None:
    state = a_cluster(a_pod("a", cpu="1", node="n1"))
    state.set_node(a_node("n1"))
    assert used(state) == 1000
    state.remove_node("n1")
    state.remove_pod(a_pod("a", cpu="1", node="n1"))
    state.set_node(a_node("n1"))
    assert used(state) == 0


def test_a_resized_pod_counts_as_it_is_now() -> None:
    state = a_cluster(a_node("n1"), a_pod("a", cpu="1", node="n1"))
    state.set_pod(a_pod("a", cpu="2", node="n1"))
    assert used(state) == 2000


def resizing(asked: str, has: str) -> Pod:
    container = {"name": "app", "allocatedResources": {"cpu": has},
                 "resources": {"requests": {"cpu": has}}}  # fmt: skip
    return a_pod("a", cpu=asked, node="n1", status={"containerStatuses": [container]})


def test_a_pod_counts_with_the_most_of_its_resize_until_it_is_done() -> None:
    state = a_cluster(a_node("n1"), resizing("1", "1"))
    for asked, has, counted in (("2", "1", 2000), ("2", "2", 2000), ("1", "2", 2000),
                                  ("1", "1", 1000)):  # fmt: skip
        state.set_pod(resizing(asked, has))
        assert used(state) == counted


def test_heartbeat_keeps_the_generation() -> None:
    state = a_cluster(a_node("n1"))
    before = state.generation
    assert not state.set_node(a_node("n1"))
    assert state.generation == before
    assert state.set_node(a_node("n1", handlers=("kata",)))


def test_changed_nodes_are_listed_newest_first_and_once() -> None:
    state = a_cluster(a_node("n1"), a_node("n2"), a_node("n3"))
    since = state.generation
    assume(state, "a", "n1")
    assume(state, "b", "n3")
    assume(state, "c", "n1")
    assert state.changed_since(since) == ["n1", "n3"]
    state.remove_node("n2")
    assert state.changed_since(since) == ["n2", "n1", "n3"]
    assert state.changed_since(state.generation) == []


def test_changes_are_known_back_to_the_last_forgetting() -> None:
    state = a_cluster(a_node("n1"))
    for number in range(100):
        state.set_node(a_node(f"x{number}"))
        state.remove_node(f"x{number}")
    generations = range(state.generation + 1)
    forgotten = next(g for g in generations if state.changed_since(g) is not None)
    assert forgotten > 0
    known = state.changed_since(forgotten)
    assert known is not None
    assert known[-1].startswith("x")
    assert state.changed_since(forgotten - 1) is None


def test_names_of_nodes_long_gone_are_forgotten() -> None:
    state = a_cluster(a_node("n1"))
    since = state.generation
    for number in range(500):
        state.set_node(a_node(f"x{number}"))
        state.remove_node(f"x{number}")
    assert state.changed_since(since) is None
    assert state.changed_since(state.generation) == []


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["assume", "confirm", "forget", "end", "delete", "lose", "join"]),
        st.integers(0, 5),
        st.sampled_from(["n1", "n2"]),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(_STEPS)
def test_sums_equal_those_of_the_pods_after_any_steps(
    steps: list[tuple[str, int, str]],
) -> None:
    state = a_cluster(a_node("n1"), a_node("n2"))
    for step, number, node in steps:
        pod = a_pod(f"p{number}", cpu=f"{number + 1}", node=node, owner="set", host_port=number)
        match step:
            case "assume":
                assume(state, f"p{number}", node, cpu=f"{number + 1}")
            case "confirm":
                state.set_pod(pod)
            case "forget":
                state.forget(f"default/p{number}")
            case "end":
                state.set_pod(a_pod(f"p{number}", cpu=f"{number + 1}", node=node, phase="Failed"))
            case "delete":
                state.remove_pod(pod)
            case "lose":
                state.remove_node(node)
            case "join":
                state.set_node(a_node(node))
    for info in state.nodes.values():
        pods = list(info.pods.values())
        assert info.used.get("cpu", 0) == sum(scheduled.query.cpu_milli for scheduled in pods)
        assert info.shown_cpu_milli == sum(scheduled.query.shown_cpu_milli for scheduled in pods)
        assert sum(info.owners.values()) == sum(
            1 for scheduled in pods if scheduled.query.owner_uid
        )
        assert sum(info.ports.values()) == sum(len(scheduled.query.ports) for scheduled in pods)
        assert all(state.home_of(scheduled.key) == info.name for scheduled in pods)


AFFINE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"a": "b"}}}]}}  # fmt: skip


def test_zones_and_images_are_counted_with_their_nodes() -> None:
    state = a_cluster(
        a_node("n1", labels={ZONE: "a"}, images={"i:1": 1}),
        a_node("n2", labels={ZONE: "a"}, images={"i:1": 1, "j:1": 2}),
        a_node("n3", labels={ZONE: "b"}),
        a_node("n4"),
    )
    assert state.zones == {"a": 2, "b": 1}
    assert state.image_spread == {"i:1": 2, "j:1": 1}
    state.set_node(a_node("n2", labels={ZONE: "b"}, images={"i:1": 1}))
    assert state.zones == {"a": 1, "b": 2}
    assert state.image_spread == {"i:1": 2}
    state.remove_node("n1")
    state.remove_node("unknown")
    assert state.zones == {"b": 2}
    assert state.image_spread == {"i:1": 1}


def test_pods_with_affinity_are_counted_wherever_they_are() -> None:
    state = a_cluster(a_node("n1"), a_pod("plain", node="n1"))
    assert state.affine_count == 0
    affine = a_pod("affine", node="n1", affinity=AFFINE)
    state.set_pod(affine)
    state.set_pod(a_pod("lost", node="gone", affinity=AFFINE))
    assert state.affine_count == 2
    state.set_pod(affine)
    state.remove_pod(a_pod("plain", node="n1"))
    assert state.affine_count == 2
    state.remove_pod(affine)
    assert state.affine_count == 1
    state.remove_pod(a_pod("lost", node="gone", affinity=AFFINE))
    assert state.affine_count == 0


def test_a_pods_newer_object_takes_the_place_of_the_older() -> None:
    state = a_cluster(a_node("n1"), a_pod("a", node="n1", affinity=AFFINE))
    before = state.generation
    state.set_pod(a_pod("a", node="n1", affinity=AFFINE, phase="Running"))
    info = state.nodes["n1"]
    assert state.generation == before
    assert info.pods["default/a"].pod.status.phase == "Running"
    assert info.affine["default/a"].pod.status.phase == "Running"
    lost = a_cluster(a_pod("b", node="gone"))
    lost.set_pod(a_pod("b", node="gone", phase="Running"))
    lost.set_node(a_node("gone"))
    assert lost.nodes["gone"].pods["default/b"].pod.status.phase == "Running"


def test_pod_change_that_affects_scheduling_is_a_new_generation() -> None:
    for change in ({"labels": {"x": "y"}}, {"uid": "other"}, {"cpu": "2"}):
        state = a_cluster(a_node("n1"), a_pod("a", cpu="1", node="n1"))
        before = state.generation
        state.set_pod(a_pod("a", **{"cpu": "1", "node": "n1", **change}))  # type: ignore[arg-type]
        assert state.generation > before, change


def test_a_nomination_is_one_node_at_a_time() -> None:
    state = a_cluster(a_node("n1"), a_node("n2"))
    pod, other = a_pod("a"), a_pod("b")
    query = QueryCache().of_waiting(pod, lambda _: None)
    assert not state.has_nominations
    state.nominate(pod, query, "n1")
    state.nominate(other, query, "n1")
    assert [nominee.key for nominee in state.nominated_on("n1")] == ["default/a", "default/b"]
    state.nominate(pod, query, "n2")
    assert [nominee.key for nominee in state.nominated_on("n1")] == ["default/b"]
    assert state.nomination_of(pod) == "n2"
    assert state.withdraw("default/a") == "n2"
    assert state.withdraw("default/a") is None
    assert state.nomination_of(a_pod("a", nominated="n9")) == "n9"
    assert state.has_nominations
    assert state.withdraw("default/b") == "n1"
    assert not state.has_nominations


def test_leaving_is_forgotten_with_the_pod() -> None:
    state = a_cluster(a_node("n1"), a_pod("a", node="n1"))
    state.set_leaving("default/a")
    assert state.is_leaving("default/a")
    state.set_leaving("default/a", is_leaving=False)
    assert not state.is_leaving("default/a")
    state.set_leaving("default/a")
    state.remove_pod(a_pod("a", node="n1"))
    assert not state.is_leaving("default/a")


def test_namespaces_change_when_their_labels_do() -> None:
    state = a_cluster()
    assert state.namespace_labels("one") == {}
    assert state.set_namespace("one", {"a": "b"})
    version = state.namespace_version
    assert not state.set_namespace("one", {"a": "b"})
    assert state.namespace_version == version
    assert state.set_namespace("one", {"a": "c"})
    assert state.namespace_labels("one") == {"a": "c"}
    assert state.set_namespace("one", None)
    assert not state.set_namespace("one", None)
    assert state.namespace_version == version + 2


def test_changes_since_a_generation_are_returned_until_forgotten() -> None:
    state = a_cluster(a_node("n1"), a_node("n2"))
    since = state.generation
    assert state.changed_since(since) == []
    state.set_pod(a_pod("a", node="n2"))
    assert state.changed_since(since) == ["n2"]
    state.remove_node("n1")
    assert state.changed_since(since) == ["n1", "n2"]
    for number in range(200):
        state.set_node(a_node(f"x{number}"))
        state.remove_node(f"x{number}")
    assert state.changed_since(since) is None
    assert state.changed_since(state.generation) == []


@pytest.mark.parametrize(("cpu", "is_new"), [("1", False), ("2", True)])
def test_assumed_pod_is_updated_only_if_its_requests_changed(cpu: str, is_new: bool) -> None:
    def pod(cpu: str, node: str = "") -> Pod:
        return a_pod("a", node=node, resources={"requests": {"cpu": cpu}})

    state = a_cluster(a_node("n1"), a_node("n2"))
    state.assume(pod("1"), QueryCache().of_waiting(pod("1"), lambda _: None), "n1")
    before = state.generation
    state.set_pod(pod(cpu, "n1"))
    assert (state.generation > before) is is_new
    assert state.nodes["n1"].used["cpu"] == int(cpu) * 1000
    assert not state.is_assumed("default/a")


def test_a_pod_without_a_node_is_counted_nowhere() -> None:
    state = a_cluster(a_node("n1"))
    waiting = a_pod("p", cpu="1", affinity=pod_affinity({"app": "db"}))
    state.set_pod(waiting)
    assert state.home_of("default/p") is None
    assert state.affine_count == 0
    state.set_pod(a_pod("p", cpu="1", node="n1", affinity=pod_affinity({"app": "db"})))
    assert (state.home_of("default/p"), state.affine_count) == ("n1", 1)
    # An object from before the binding, as after a restored backup: it is not on the node any more.
    state.set_pod(waiting)
    assert (state.home_of("default/p"), state.affine_count, used(state)) == (None, 0, 0)
