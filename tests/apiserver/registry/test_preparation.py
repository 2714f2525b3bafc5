"""What a write may not bring along is put back before validation."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.preparation import (
    drop_status,
    keep_spec,
    keep_spec_and_labels,
    keep_status,
)


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": status}


def test_the_main_endpoint_does_not_write_the_status() -> None:
    new, old = pod(phase="Running"), pod(phase="Pending")
    keep_status(new, old)
    assert new["status"] == {"phase": "Pending"}
    del old["status"]
    keep_status(new, old)
    assert "status" not in new


def test_the_status_endpoint_writes_status_and_metadata_only() -> None:
    new = {"metadata": {"labels": {"a": "new"}}, "spec": {"x": 1}, "data": 1, "status": {"s": 1}}
    old = {"metadata": {"labels": {"a": "old"}}, "spec": {"x": 0}, "status": {"s": 0}}
    keep_spec(new, old)
    assert new == {"metadata": {"labels": {"a": "new"}}, "spec": {"x": 0}, "status": {"s": 1}}


def test_a_workloads_status_endpoint_keeps_labels_too() -> None:
    new = {"metadata": {"labels": {"a": "new"}, "annotations": {"n": "1"}}, "status": {}}
    old = {"metadata": {"labels": {"a": "old"}}, "status": {}}
    keep_spec_and_labels(new, old)
    assert new["metadata"] == {"labels": {"a": "old"}, "annotations": {"n": "1"}}


def test_a_new_object_has_no_status() -> None:
    deployment = {"status": {"replicas": 3}}
    drop_status(deployment)
    assert deployment == {"status": {}}
