"""The cases that Kubernetes 1.36 was seen to decide, one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.pods import Toleration
from moorage.api.runtime_group import RuntimeClass
from moorage.runtimeclass import AdmissionRefusal, PodFields, admit, check_admitted
from moorage.runtimeclass.admission import covers, merge_tolerations

G = {"key": "rt", "operator": "Equal", "value": "gvisor", "effect": "NoSchedule"}
G_PLAIN = {"key": "rt", "value": "gvisor", "effect": "NoSchedule"}
N = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 300}  # fmt: skip
U = N | {"key": "node.kubernetes.io/unreachable"}
EVERYTHING = {"operator": "Exists"}
FIZZ = {"key": "fizz", "operator": "Equal", "value": "buzz", "effect": "NoSchedule"}


def tolerating(*tolerations: dict[str, Any]) -> dict[str, Any]:
    return {"handler": "h", "scheduling": {"tolerations": list(tolerations)}}


def ne(seconds: int | None) -> dict[str, Any]:
    toleration: dict[str, Any] = {"key": "rt", "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else toleration | {"tolerationSeconds": seconds}


CLASSES: dict[str, dict[str, Any]] = {
    "plain": {"handler": "h"},
    "oh": {"handler": "h", "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}}},
    "ohnil": {"handler": "h", "overhead": {}},
    "ohzero": {"handler": "h", "overhead": {"podFixed": {"cpu": "0"}}},
    "sel": {"handler": "h", "scheduling": {"nodeSelector": {"rt": "gvisor"}}},
    "schnil": {"handler": "h", "scheduling": {}},
    "tol": tolerating(G),
    "tolx": tolerating(G_PLAIN),
    "tolkey": tolerating({"key": "rt", "operator": "Exists"}),
    "tolall": tolerating(EVERYTHING),
    "ne5": tolerating(ne(5)),
    "nr60": tolerating(N | {"tolerationSeconds": 60}),
    "nr600": tolerating(N | {"tolerationSeconds": 600}),
    "nrinf": tolerating({key: value for key, value in N.items() if key != "tolerationSeconds"}),
    "noexec": tolerating({"operator": "Exists", "effect": "NoExecute"}),
    "two": {"handler": "h", "scheduling": {"nodeSelector": {"rt": "gvisor"},
                                          "tolerations": [G, FIZZ]}},
}  # fmt: skip


def runtime_class(name: str) -> RuntimeClass:
    return msgspec.convert(CLASSES[name], RuntimeClass)


MISMATCH = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
WITHOUT = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
OH = {"cpu": "250m", "memory": "120Mi"}


@pytest.mark.parametrize(
    ("class_name", "overhead", "expected"),
    [
        ("plain", None, None),
        ("oh", None, OH),
        ("oh", {"cpu": "0.25", "memory": "122880Ki"}, OH),
        ("oh", {}, OH),
        ("ohnil", None, None),
        ("ohnil", {}, None),
        ("ohzero", {"cpu": "0m"}, {"cpu": "0"}),
    ],
)
def test_overhead_is_filled_in_as_the_class_writes_it(
    class_name: str, overhead: dict[str, str] | None, expected: dict[str, str] | None
) -> None:
    admitted = admit(PodFields(overhead=overhead), runtime_class(class_name))
    assert admitted.overhead == expected
    check_admitted(admitted.overhead, runtime_class(class_name))


@pytest.mark.parametrize(
    ("class_name", "overhead"),
    [
        ("oh", {"cpu": "1", "memory": "120Mi"}),
        ("oh", {"cpu": "250m"}),
        ("oh", {"pods": "1"}),
        ("ohnil", {"cpu": "1"}),
    ],
)
def test_another_overhead_than_the_classs_is_refused(
    class_name: str, overhead: dict[str, str]
) -> None:
    with pytest.raises(AdmissionRefusal) as refusal:
        admit(PodFields(overhead=overhead), runtime_class(class_name))
    assert str(refusal.value) == MISMATCH


@pytest.mark.parametrize("class_name", [None, "plain"])
@pytest.mark.parametrize("overhead", [{}, {"cpu": "1"}])
def test_overhead_without_a_class_that_defines_it_is_refused(
    class_name: str | None, overhead: dict[str, str]
) -> None:
    result = runtime_class(class_name) if class_name else None
    with pytest.raises(AdmissionRefusal) as refusal:
        check_admitted(overhead, result)
    assert str(refusal.value) == WITHOUT


def test_overhead_that_another_mutator_changed_is_refused() -> None:
    with pytest.raises(AdmissionRefusal, match="doesn't match"):
        check_admitted({"cpu": "1"}, runtime_class("oh"))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, {"rt": "gvisor"}),
        ({}, {"rt": "gvisor"}),
        ({"rt": "gvisor"}, {"rt": "gvisor"}),
        ({"disk": "ssd"}, {"disk": "ssd", "rt": "gvisor"}),
    ],
)
def test_the_classs_node_selector_joins_the_pods(
    selector: dict[str, str] | None, expected: dict[str, str]
) -> None:
    assert admit(PodFields(node_selector=selector), runtime_class("sel")).node_selector == expected


@pytest.mark.parametrize("value", ["kata", ""])
def test_a_contradicting_selector_is_refused_with_both_sides(value: str) -> None:
    with pytest.raises(AdmissionRefusal) as refusal:
        admit(PodFields(node_selector={"rt": value}), runtime_class("sel"))
    assert str(refusal.value) == (
        "conflict: runtimeClass.scheduling.nodeSelector[rt] = gvisor; "
        f"pod.spec.nodeSelector[rt] = {value}"
    )


def test_wrong_overhead_is_reported_before_a_contradicting_selector() -> None:
    both = msgspec.convert(CLASSES["oh"] | CLASSES["sel"], RuntimeClass)
    pod = PodFields(overhead={"cpu": "9"}, node_selector={"rt": "kata"})
    with pytest.raises(AdmissionRefusal, match="Overhead"):
        admit(pod, both)


A_ANY = {"key": "a", "operator": "Exists"}
A_NS = A_ANY | {"effect": "NoSchedule"}
RT_ANY = {"key": "rt", "operator": "Exists"}
RT_KATA = G | {"value": "kata"}
Y_ANY = {"key": "y", "operator": "Exists"}
Z_ANY = {"key": "z", "operator": "Exists"}

# The pod's own tolerations come with the two defaults that ran before, as in the API server.
MERGED: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("plain", [A_ANY, A_NS, N, U], [A_ANY, A_NS, N, U]),
    ("schnil", [A_ANY, A_NS, N, U], [A_ANY, N, U]),
    ("tol", [N, U], [N, U, G]),
    ("tol", [G, N, U], [G, N, U]),
    ("tol", [RT_KATA, N, U], [RT_KATA, N, U, G]),
    ("tol", [RT_ANY, N, U], [RT_ANY, N, U]),
    ("tol", [EVERYTHING], [EVERYTHING]),
    ("tolall", [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}, N, U], [EVERYTHING]),
    ("tolkey", [G, Y_ANY, N, U], [Y_ANY, N, U, RT_ANY]),
    ("tolx", [G, N, U], [N, U, G_PLAIN]),
    ("tol", [G_PLAIN, N, U], [G_PLAIN, N, U]),
    ("ne5", [ne(10), N, U], [ne(10), N, U]),
    ("ne5", [ne(1), N, U], [N, U, ne(5)]),
    ("ne5", [ne(None), N, U], [ne(None), N, U]),
    ("nr60", [N, U], [N, U]),
    ("nr600", [N, U], [U, N | {"tolerationSeconds": 600}]),
    ("nrinf", [N, U], [U, {key: value for key, value in N.items() if key != "tolerationSeconds"}]),
    ("noexec", [N, U], [{"operator": "Exists", "effect": "NoExecute"}]),
    ("tol", [Z_ANY, Z_ANY, N, U], [Z_ANY, N, U, G]),
    ("two", [G, N, U], [G, N, U, FIZZ]),
]


def typed(tolerations: list[dict[str, Any]]) -> tuple[Toleration, ...]:
    return msgspec.convert(tolerations, tuple[Toleration, ...])


@pytest.mark.parametrize(("class_name", "pod", "expected"), MERGED)
def test_tolerations_merge_without_duplicates(
    class_name: str, pod: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    admitted = admit(PodFields(tolerations=typed(pod)), runtime_class(class_name))
    assert msgspec.to_builtins(list(admitted.tolerations or ())) == expected


TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["", "a", "b"]),
    operator=st.sampled_from(["", "Equal", "Exists"]),
    value=st.sampled_from(["", "x"]),
    effect=st.sampled_from(["", "NoSchedule", "NoExecute"]),
    toleration_seconds=st.sampled_from([None, 0, 5]),
)


@given(st.lists(TOLERATIONS, max_size=6), st.lists(TOLERATIONS, max_size=6))
def test_nothing_tolerated_before_is_lost_and_no_toleration_is_doubled(
    pod: list[Toleration], of_class: list[Toleration]
) -> None:
    merged = merge_tolerations(pod, of_class)
    for toleration in [*pod, *of_class]:
        assert any(covers(kept, toleration) for kept in merged)
    assert len(set(merged)) == len(merged)
    assert merge_tolerations(merged, []) == merged
