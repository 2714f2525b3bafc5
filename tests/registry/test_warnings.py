"""Warnings about legal objects: the sentences of the `Warning` header."""

from __future__ import annotations

from moorage.registry.warnings import warn_workload


def test_a_template_is_looked_at_when_it_changes() -> None:
    spec = {"overhead": {"memory": "100m"}}
    workload = {"spec": {"replicas": 1, "template": {"spec": spec}}}
    scaled = {"spec": {"replicas": 2, "template": {"spec": spec}}}
    (warning,) = warn_workload(workload, None)
    assert warning.startswith("spec.template.spec.overhead[memory]: fractional byte value")
    assert warn_workload(scaled, workload) == []
