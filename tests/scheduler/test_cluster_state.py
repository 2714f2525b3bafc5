from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.query import QueryCache
from tests.scheduler.objects import a_cluster, a_node, a_pod


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


def test_pods_that_ended_hold_nothing() -> None:
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


def test_a_heartbeat_is_no_change() -> None:
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
def test_the_sums_are_those_of_the_pods_whatever_happens(
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
        assert info.used.get("cpu", 0) == sum(each.query.cpu_milli for each in pods)
        assert info.shown_cpu_milli == sum(each.query.shown_cpu_milli for each in pods)
        assert sum(info.owners.values()) == sum(1 for each in pods if each.query.owner_uid)
        assert sum(info.ports.values()) == sum(len(each.query.ports) for each in pods)
        assert all(state.home_of(each.key) == info.name for each in pods)
