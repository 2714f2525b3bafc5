"""Validation of pod specifications, of which equal valid ones are remembered."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.validation import pod_spec
from moorage.apiserver.registry.validation.pod_spec import pod_spec_errors


def _spec(**fields: Any) -> dict[str, Any]:
    """Return a valid specification with some fields replaced."""
    container = {
        "name": "app", "image": "app:1", "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    }  # fmt: skip
    return {
        "containers": [container], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30, **fields,
    }  # fmt: skip


def _remembered() -> int:
    return int(pod_spec._check_spec.cache_info().currsize)  # type: ignore[attr-defined]


def test_a_valid_specification_is_remembered_and_its_pods_are_checked_by_it() -> None:
    spec = _spec(hostname="remembered-once")
    before = _remembered()
    assert [pod_spec_errors(spec, "spec", name) for name in ("a", "b", "a")] == [[], [], []]
    assert _remembered() <= before + 1


def test_errors_are_found_each_time_and_under_each_path() -> None:
    spec = _spec(dnsPolicy="Never")
    before = _remembered()
    for path in ("spec", "spec.template.spec", "spec"):
        first, second = pod_spec_errors(spec, path, "a"), pod_spec_errors(spec, path, "a")
        assert [error.field for error in first] == [f"{path}.dnsPolicy"]
        assert first == second
        first.clear()
    assert _remembered() == before, "texts of errors may be long"


def test_a_specification_that_is_changed_in_place_is_another_one() -> None:
    spec = _spec(hostname="changed-in-place")
    assert pod_spec_errors(spec, "spec", "a") == []
    spec["hostname"] = "Not.A.Label"
    assert [error.field for error in pod_spec_errors(spec, "spec", "a")] == ["spec.hostname"]


def test_claims_of_ephemeral_volumes_are_checked_with_the_name_of_each_pod() -> None:
    claim = {"spec": {"accessModes": ["ReadWriteOnce"],
                      "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    spec = _spec(volumes=[{"name": "data", "ephemeral": {"volumeClaimTemplate": claim}}])
    assert pod_spec_errors(spec, "spec", "a") == []
    assert pod_spec_errors(spec, "spec", "a" * 250) != []
    assert pod_spec_errors(spec, "spec", "a") == []


def test_a_long_specification_is_not_remembered() -> None:
    spec = _spec(nodeSelector={f"key-{n}": "x" * 60 for n in range(100)})
    before = _remembered()
    assert pod_spec_errors(spec, "spec", "a") == []
    assert _remembered() == before
