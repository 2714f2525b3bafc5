"""State of the policies: changes that lead where a fresh look at everything leads."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage.network.frame import IPV4
from moorage.network.policies.state import PolicyState
from moorage.network.tables import Table
from tests.network.objects import a_pod, a_policy

A, B = {"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}
RULES: list[dict[str, Any]] = [
    {"ingress": [{"from": [{"podSelector": A}]}]},
    {"ingress": []},
    {"podSelector": A, "egress": [{"to": [{"namespaceSelector": B}]}]},
    {
        "egress": [
            {"to": [{"podSelector": B, "namespaceSelector": {}}], "ports": [{"port": "http"}]}
        ]
    },
]
ADDRESSES = [f"10.244.0.{number}" for number in range(3, 7)]


def apply(state: PolicyState, table: Table) -> str:
    return "".join(table.replace(key, fragment) for _, key, fragment in state.changes())


def content(table: Table) -> list[str]:
    """Return the table's lines without regard to the order of chains and elements."""
    words = table.script().replace(",", "\n").splitlines()
    return sorted(" ".join(sorted(word.strip("{ }").split())) for word in words)


steps = st.one_of(
    st.tuples(st.just("policy"), st.sampled_from(["p", "q"]), st.sampled_from(["default", "other"]),
              st.sampled_from([None, 0, 1, 2, 3])),
    st.tuples(st.just("namespace"), st.sampled_from(["default", "other"]),
              st.sampled_from([None, {}, {"app": "b"}])),
    st.tuples(st.just("pod"), st.sampled_from("xyz"), st.sampled_from([None, *ADDRESSES]),
              st.sampled_from(["default", "other"]), st.sampled_from("ab")),
)  # fmt: skip


@given(st.lists(steps, max_size=15))
def test_changes_lead_where_a_fresh_look_leads(steps: list[tuple[Any, ...]]) -> None:
    state, table = PolicyState([IPV4]), Table("ip", "t", "")
    known: dict[tuple[str, ...], Any] = {}
    for step in steps:
        match step:
            case "policy", name, namespace, number:
                policy = None if number is None else a_policy(name, namespace, **RULES[number])
                known["policy", namespace, name] = policy
                state.set_policy(namespace, name, policy)
            case "namespace", name, labels:
                known["namespace", name] = labels
                state.set_namespace(name, labels)
            case "pod", key, address, namespace, label:
                pod = None
                if address is not None:
                    pod = a_pod(address, namespace, ("TCP", "http", 80), app=label)
                    pod = type(pod)(key, pod.namespace, pod.labels, pod.addresses, pod.ports)
                    for other, kept in known.items():
                        if (
                            other[0] == "pod"
                            and kept is not None
                            and kept.addresses == pod.addresses
                        ):
                            known[other] = None
                known["pod", key] = pod
                state.set_pod(key, pod)
        apply(state, table)
    fresh, whole = PolicyState([IPV4]), Table("ip", "t", "")
    for (kind, *names), value in known.items():
        if value is not None:
            getattr(fresh, f"set_{kind}")(*names, value)
    apply(fresh, whole)
    assert content(table) == content(whole)
    assert apply(state, table) == ""


def test_an_address_is_the_last_pods_that_got_it() -> None:
    state, table = PolicyState([IPV4]), Table("ip", "t", "")
    state.set_policy("default", "p", a_policy(podSelector=A, ingress=[]))
    state.set_pod("old", a_pod("10.244.0.3", app="a"))
    apply(state, table)
    assert "10.244.0.3 : goto ingress-" in table.script()
    state.set_pod("new", a_pod("10.244.0.3", app="b"))
    apply(state, table)
    assert table.script().count("10.244.0.3 : return") == 2
    state.set_pod("old", None)
    apply(state, table)
    assert table.script().count("10.244.0.3 : return") == 2


def test_a_set_of_peers_goes_with_the_last_chain_that_uses_it() -> None:
    state, table = PolicyState([IPV4]), Table("ip", "t", "")
    state.set_policy("default", "p", a_policy(**RULES[0]))
    state.set_pod("x", a_pod("10.244.0.3", app="a"))
    added = apply(state, table).splitlines()
    assert added[0].startswith("add set ip t peers-")
    state.set_policy("default", "p", None)
    removed = apply(state, table).splitlines()
    assert removed[-1].startswith("delete set ip t peers-")
