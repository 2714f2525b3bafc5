"""Allocation records on disk."""

from __future__ import annotations

from pathlib import Path

from moorage.node.paths import NodePaths
from moorage.node.pod_facts.labels import Given
from moorage.node.pod_facts.resources import allocation_of
from moorage.node.pods.allocations import AllocationRecord, AllocationRecords
from tests.node.objects import UID, a_pod, wire_container

RESOURCES = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = AllocationRecords(NodePaths(tmp_path, tmp_path / "logs"))
    assert records.read(UID) is None
    pod = a_pod(wire_container(resources=RESOURCES), resources=RESOURCES)
    given = {"app-0": Given(pod.spec.containers[0].resources, pod.spec.resources)}
    record = AllocationRecord(allocation_of(pod), given, frozenset({"app-0"}))
    (tmp_path / "pods" / UID).mkdir(parents=True)
    records.write(UID, record)
    assert records.read(UID) == record


def test_a_damaged_record_counts_as_none(tmp_path: Path) -> None:
    paths = NodePaths(tmp_path, tmp_path / "logs")
    paths.pod(UID).root.mkdir(parents=True)
    paths.pod(UID).resources.write_text("{")
    assert AllocationRecords(paths).read(UID) is None
