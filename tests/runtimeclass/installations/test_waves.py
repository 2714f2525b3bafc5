"""Nodes change in waves: never more than are allowed, and all in the end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_installations import (
    FAILED,
    INSTALLED,
    InstallationSource,
    NodeInstallation,
    RuntimeInstallation,
    RuntimeInstallationSpec,
    RuntimeInstallationStatus,
)
from moorage.runtimeclass.installations import PATIENCE, NodeFacts, TargetNode, plan_waves

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = InstallationSource(architecture="amd64", path="/x", sha256="a" * 64)


def _node(name: str, *, arch: str = "amd64", unready: bool = False, **labels: str) -> TargetNode:
    facts = NodeFacts(name, labels, arch)
    return TargetNode(facts, NOW if unready else None)


def _installation(
    *entries: NodeInstallation,
    most: int | str = 1,
    allowed: tuple[str, ...] = (),
    selector: dict[str, str] | None = None,
    deleted: bool = False,
) -> RuntimeInstallation:
    return RuntimeInstallation(
        metadata=ObjectMeta(
            name="i", generation=2, deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None
        ),
        spec=RuntimeInstallationSpec(
            handler="h", sources=(SOURCE,), max_unavailable=most, node_selector=selector or {}
        ),
        status=RuntimeInstallationStatus(allowed=allowed, nodes=entries),
    )


def _entry(name: str, phase: str = INSTALLED, generation: int = 2) -> NodeInstallation:
    return NodeInstallation(
        name=name, phase=phase, observed_generation=generation, message=f"why {name}"
    )


def _conditions(status: RuntimeInstallationStatus) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.message) for one in status.conditions}


@pytest.mark.parametrize(
    ("most", "nodes", "allowed"),
    [(1, 5, 1), (3, 5, 3), (9, 5, 5), ("40%", 5, 2), ("41%", 5, 3), ("1%", 5, 1), ("100%", 5, 5)],
)
def test_no_more_than_the_limit_may_change(most: int | str, nodes: int, allowed: int) -> None:
    plan = plan_waves(_installation(most=most), [_node(f"n{i}") for i in range(nodes)], NOW)
    assert plan.status.allowed == tuple(f"n{i}" for i in range(allowed))
    assert (plan.status.desired, plan.status.installed, plan.status.failed) == (nodes, 0, 0)
    assert plan.status.observed_generation == 2


def test_a_node_keeps_its_place_until_it_has_this_generation() -> None:
    nodes = [_node("a"), _node("b"), _node("c")]
    former = _installation(_entry("a", generation=1), allowed=("a",))
    assert plan_waves(former, nodes, NOW).status.allowed == ("a",)
    failed = plan_waves(_installation(_entry("a", FAILED), allowed=("a",)), nodes, NOW).status
    assert failed.allowed == ("a",)
    assert (failed.failed, failed.installed) == (1, 0)
    assert _conditions(failed)["Degraded"] == ("True", "a: why a")
    done = plan_waves(_installation(_entry("a"), allowed=("a",)), nodes, NOW).status
    assert done.allowed == ("b",)
    assert _conditions(done)["Ready"] == ("False", "1 of 3 nodes have handler h")


def test_nodes_that_are_not_ready_get_no_place_but_keep_the_one_they_have() -> None:
    nodes = [_node("a", unready=True), _node("b")]
    assert plan_waves(_installation(), nodes, NOW).status.allowed == ("b",)
    assert plan_waves(_installation(allowed=("a",)), nodes, NOW).status.allowed == ("a",)
    assert plan_waves(_installation(allowed=("gone",)), nodes, NOW).status.allowed == ("b",)


def test_nodes_without_a_source_take_no_place_and_are_named() -> None:
    nodes = [_node("a", arch="riscv64"), _node("b")]
    status = plan_waves(_installation(_entry("b")), nodes, NOW).status
    assert (status.desired, status.installed, status.failed, status.allowed) == (2, 1, 1, ())
    assert _conditions(status)["Degraded"] == (
        "True",
        "a: there is no source for its architecture",
    )
    assert _conditions(status)["Ready"][0] == "False"


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ([INSTALLED, INSTALLED], "Installed"),
        ([INSTALLED, FAILED], "NodesFailed"),
        ([INSTALLED], "NodesChange"),
    ],
)
def test_progress_ends_with_what_came_of_it(phases: list[str], reason: str) -> None:
    nodes = [_node("a"), _node("b")]
    entries = [_entry(name, phase) for name, phase in zip("ab", phases, strict=False)]
    conditions = plan_waves(_installation(*entries), nodes, NOW).status.conditions
    assert [one.reason for one in conditions if one.type == "Progressing"] == [reason]


def test_nodes_that_are_no_longer_selected_leave_within_the_limit() -> None:
    nodes = [_node("a"), _node("b"), _node("c", pool="x")]
    status = plan_waves(
        _installation(_entry("a"), _entry("b"), _entry("c"), selector={"pool": "x"}), nodes, NOW
    ).status
    assert status.allowed == ("a",)
    assert (status.desired, status.installed) == (1, 1)
    assert _conditions(status)["Ready"][0] == "False"


def test_a_deletion_waits_for_living_nodes_and_not_for_ever_for_others() -> None:
    nodes = [_node("a"), _node("b", unready=True)]
    entries = (_entry("a"), _entry("b"), _entry("gone"))
    plan = plan_waves(_installation(*entries, deleted=True), nodes, NOW)
    assert (plan.is_done, plan.status.desired, plan.status.allowed) == (False, 0, ("a",))
    left = _installation(_entry("b"), _entry("gone"), deleted=True)
    waiting = plan_waves(left, nodes, NOW)
    assert (waiting.is_done, waiting.due) == (False, NOW + PATIENCE)
    assert plan_waves(left, nodes, NOW + PATIENCE).is_done
    assert plan_waves(_installation(deleted=True), nodes, NOW).is_done


def test_the_time_of_a_condition_is_that_of_its_change() -> None:
    first = plan_waves(_installation(), [_node("a")], NOW).status
    later = NOW + timedelta(hours=1)
    installation = msgspec.structs.replace(_installation(), status=first)
    assert plan_waves(installation, [_node("a")], later).status == first
    done = msgspec.structs.replace(first, nodes=(_entry("a"),))
    status = plan_waves(
        msgspec.structs.replace(installation, status=done), [_node("a")], later
    ).status
    times = {one.type: one.last_transition_time for one in status.conditions}
    assert times == {
        "Ready": "2026-01-01T01:00:00Z",
        "Progressing": "2026-01-01T01:00:00Z",
        "Degraded": "2026-01-01T00:00:00Z",
    }


def test_a_long_list_of_failures_is_cut() -> None:
    nodes = [_node(f"n{i:03}") for i in range(50)]
    entries = [_entry(node.facts.name, FAILED) for node in nodes]
    message = _conditions(plan_waves(_installation(*entries, most=50), nodes, NOW).status)[
        "Degraded"
    ][1]
    assert message.endswith("; and 40 more")


@given(
    st.integers(1, 12),
    st.one_of(st.integers(1, 5), st.integers(1, 100).map(lambda one: f"{one}%")),
    st.data(),
)
def test_all_nodes_come_to_it_and_the_limit_always_holds(
    count: int, most: int | str, data: st.DataObject
) -> None:
    """Whatever order nodes finish in, and however often they fail before."""
    nodes = [_node(f"n{i}") for i in range(count)]
    installation = _installation(most=most)
    limit = most if isinstance(most, int) else max(1, -(-int(most[:-1]) * count // 100))
    for _ in range(3 * count):
        status = plan_waves(installation, nodes, NOW).status
        assert len(status.allowed) <= limit
        if not status.allowed:
            break
        name = data.draw(st.sampled_from(status.allowed))
        phase = data.draw(st.sampled_from([INSTALLED, INSTALLED, FAILED]))
        entries = {entry.name: entry for entry in status.nodes} | {name: _entry(name, phase)}
        installation = msgspec.structs.replace(
            installation, status=msgspec.structs.replace(status, nodes=tuple(entries.values()))
        )
    for _ in range(count):
        status = plan_waves(installation, nodes, NOW).status
        entries = {entry.name: entry for entry in status.nodes}
        entries |= {name: _entry(name) for name in status.allowed}
        installation = msgspec.structs.replace(
            installation, status=msgspec.structs.replace(status, nodes=tuple(entries.values()))
        )
    assert _conditions(plan_waves(installation, nodes, NOW).status)["Ready"] == (
        "True",
        f"{count} of {count} nodes have handler h",
    )
