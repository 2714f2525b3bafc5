"""Warnings about legal objects: the sentences of the `Warning` header."""

from __future__ import annotations

from moorage.apiserver.registry.warnings import spec_warnings, warn_workload


def test_a_template_is_looked_at_when_it_changes() -> None:
    spec = {"overhead": {"memory": "100m"}}
    workload = {"spec": {"replicas": 1, "template": {"spec": spec}}}
    scaled = {"spec": {"replicas": 2, "template": {"spec": spec}}}
    (warning,) = warn_workload(workload, None)
    assert warning.startswith("spec.template.spec.overhead[memory]: fractional byte value")
    assert warn_workload(scaled, workload) == []


def test_volumes_without_a_driver_any_more_are_warned_about() -> None:
    template = {"spec": {"resources": {"requests": {"storage": "1500m"}}}}
    volumes = [
        {"name": "a", "cephfs": {}},
        {"name": "b", "storageos": {}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": template}},
    ]
    assert spec_warnings({"volumes": volumes}, "spec") == [
        "spec.volumes[0].cephfs: deprecated in v1.28, non-functional in v1.31+",
        "spec.volumes[1].storageOS: deprecated in v1.22, non-functional in v1.25+",
        "spec.volumes[2].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: "
        'fractional byte value "1500m" is invalid, must be an integer',
    ]
