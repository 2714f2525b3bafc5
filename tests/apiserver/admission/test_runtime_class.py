"""The RuntimeClass plugin on whole pods; the merge rules have their own tests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.runtime_group import RuntimeClass
from moorage.apiserver.admission.chain import AdmissionChain
from moorage.apiserver.admission.default_tolerations import DefaultTolerationSeconds
from moorage.apiserver.admission.runtime_class import RuntimeClassAdmission
from moorage.apiserver.registry.kinds.pod import POD
from tests.apiserver.admission.writes import admit, pod, write
from tests.runtimeclass.test_admission import CLASSES, FIZZ, MISMATCH, OH, WITHOUT, G, N, U


def find(name: str) -> RuntimeClass | None:
    return msgspec.convert(CLASSES[name], RuntimeClass) if name in CLASSES else None


PLUGIN = RuntimeClassAdmission(find)


def admitted(spec: dict[str, Any]) -> dict[str, Any]:
    spec_after: dict[str, Any] = admit(PLUGIN, write(POD, pod(spec)))["spec"]
    return {key: value for key, value in spec_after.items() if key != "containers"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"runtimeClassName": "plain"}, {"runtimeClassName": "plain"}),
        ({"runtimeClassName": "oh"}, {"runtimeClassName": "oh", "overhead": OH}),
        (
            {"runtimeClassName": "oh", "overhead": {"cpu": "0.25", "memory": "122880Ki"}},
            {"runtimeClassName": "oh", "overhead": OH},
        ),
        ({"runtimeClassName": "oh", "overhead": {}}, {"runtimeClassName": "oh", "overhead": OH}),
        ({"runtimeClassName": "ohnil", "overhead": {}}, {"runtimeClassName": "ohnil"}),
        (
            {"runtimeClassName": "sel"},
            {"runtimeClassName": "sel", "nodeSelector": {"rt": "gvisor"}},
        ),
        (
            {"runtimeClassName": "sel", "nodeSelector": {"disk": "ssd"}, "tolerations": []},
            {"runtimeClassName": "sel", "nodeSelector": {"disk": "ssd", "rt": "gvisor"}},
        ),
        (
            {"runtimeClassName": "plain", "nodeSelector": {}, "tolerations": []},
            {"runtimeClassName": "plain", "nodeSelector": {}, "tolerations": []},
        ),
        (
            {"runtimeClassName": "two", "nodeSelector": {"foo": "bar"}, "tolerations": [G]},
            {
                "runtimeClassName": "two",
                "nodeSelector": {"foo": "bar", "rt": "gvisor"},
                "tolerations": [G, FIZZ],
            },
        ),
    ],
)
def test_a_class_is_written_into_the_pod(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    assert admitted(spec) == expected


def test_admitting_twice_changes_nothing_more() -> None:
    once = admitted({"runtimeClassName": "two", "tolerations": [N, U]})
    assert admitted(once) == once


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"runtimeClassName": "nope"}, 'pod rejected: RuntimeClass "nope" not found'),
        (
            {"runtimeClassName": "nope", "overhead": {"cpu": "1"}},
            'pod rejected: RuntimeClass "nope" not found',
        ),
        ({"runtimeClassName": "oh", "overhead": {"cpu": "250m"}}, MISMATCH),
        ({"runtimeClassName": "ohnil", "overhead": {"cpu": "1"}}, MISMATCH),
        ({"overhead": {"cpu": "1"}}, WITHOUT),
        ({"overhead": {}}, WITHOUT),
        ({"runtimeClassName": "plain", "overhead": {}}, WITHOUT),
        (
            {"runtimeClassName": "sel", "nodeSelector": {"rt": "kata"}},
            "conflict: runtimeClass.scheduling.nodeSelector[rt] = gvisor; "
            "pod.spec.nodeSelector[rt] = kata",
        ),
        (
            {"runtimeClassName": "sel", "nodeSelector": {"rt": ""}},
            "conflict: runtimeClass.scheduling.nodeSelector[rt] = gvisor; "
            "pod.spec.nodeSelector[rt] = ",
        ),
    ],
)
def test_a_contradiction_is_a_403_about_the_pod(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ForbiddenError) as refusal:
        admitted(spec)
    assert refusal.value.message == f'pods "p" is forbidden: {why}'
    assert refusal.value.details == {"name": "p", "kind": "pods"}
    assert refusal.value.status_reason == "Forbidden"


@pytest.mark.parametrize(
    ("metadata", "shown"),
    [({"generateName": "g-"}, "g-"), ({}, "Unknown"), ({"name": "p"}, "p")],
)
def test_a_refusal_names_the_pod_as_well_as_it_can(metadata: dict[str, str], shown: str) -> None:
    nameless = {"metadata": metadata, "spec": {"runtimeClassName": "nope"}}
    with pytest.raises(ForbiddenError) as refusal:
        admit(PLUGIN, write(POD, nameless))
    assert refusal.value.message == (
        f'pods "{shown}" is forbidden: pod rejected: RuntimeClass "nope" not found'
    )


@pytest.mark.parametrize(
    ("class_name", "changed_overhead", "why"),
    [("plain", {"cpu": "1"}, WITHOUT), ("oh", {"cpu": "1"}, MISMATCH)],
)
def test_what_a_later_mutator_did_to_the_overhead_is_noticed(
    class_name: str, changed_overhead: dict[str, str], why: str
) -> None:
    attributes = write(POD, pod({"runtimeClassName": class_name}))
    assert PLUGIN.mutate is not None
    assert PLUGIN.validate is not None
    PLUGIN.mutate(attributes)
    assert attributes.obj is not None
    attributes.obj["spec"]["overhead"] = changed_overhead
    with pytest.raises(ForbiddenError, match=why):
        PLUGIN.validate(attributes)


@pytest.mark.parametrize(
    ("operation", "subresource"),
    [("UPDATE", ""), ("DELETE", ""), ("CREATE", "binding"), ("UPDATE", "ephemeralcontainers")],
)
def test_only_new_pods_concern_the_plugin(operation: str, subresource: str) -> None:
    assert not PLUGIN.scope.covers("pods", subresource, operation)
    assert not PLUGIN.scope.covers("deployments.apps", "", "CREATE")


def test_with_the_gate_off_new_pods_lose_class_and_overhead() -> None:
    plugin = RuntimeClassAdmission(find, is_enabled=False)
    spec = {"runtimeClassName": "nope", "overhead": {"cpu": "1"}, "nodeSelector": {"a": "b"}}
    obj = admit(plugin, write(POD, pod(spec)))
    assert set(obj["spec"]) == {"containers", "nodeSelector"}


async def test_default_tolerations_take_part_in_the_merge() -> None:
    chain = AdmissionChain([DefaultTolerationSeconds(), PLUGIN])
    for class_name, expected in (
        ("tol", [N, U, G]),
        ("nr60", [N, U]),
        ("nr600", [U, N | {"tolerationSeconds": 600}]),
        ("tolall", [{"operator": "Exists"}]),
    ):
        attributes = write(POD, pod({"runtimeClassName": class_name}))
        await chain.mutate(attributes)
        assert attributes.obj is not None
        assert attributes.obj["spec"]["tolerations"] == expected
