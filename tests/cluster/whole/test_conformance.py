"""Conformance on real handlers: what they prove, what liars do not, what the class carries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from moorage.api.runtime_group import (
    CONFORMANCE_ANNOTATION,
    CONFORMANCE_DATE_ANNOTATION,
    CONFORMANCE_TESTED_ANNOTATION,
)
from tests.cluster.whole.odd_handlers import HANGS, LIES_ABOUT_ITS_KERNEL, odd_class
from tests.running import RunningCluster, skip_without_gvisor

pytestmark = [pytest.mark.runtime, pytest.mark.slow]


def _test(cluster: RunningCluster, name: str, *more: str, status: int = 0) -> Any:
    done = cluster.moor(
        "conformance", name, "--format", "json", "--parallel", "3", *more, status=status
    )
    return json.loads(done.stdout)


def _verdicts(result: Any) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in result["properties"]}


def _annotations(cluster: RunningCluster, name: str) -> dict[str, str]:
    annotations: dict[str, str] = cluster.get("runtimeclass", name)["metadata"]["annotations"]
    return annotations


@pytest.mark.parametrize("name", ["native", "crun"])
def test_a_native_class_is_native_and_nothing_else(
    whole_cluster: RunningCluster, name: str
) -> None:
    assert _test(whole_cluster, name)["conforms_to"] == ["native"]
    annotations = _annotations(whole_cluster, name)
    assert annotations[CONFORMANCE_ANNOTATION] == "native"
    assert annotations[CONFORMANCE_TESTED_ANNOTATION].startswith("sha256:")
    assert annotations[CONFORMANCE_DATE_ANNOTATION].endswith("Z")
    pods = whole_cluster.get("pods", "-l", "runtime.moorage.dev/conformance-run")["items"]
    assert all("deletionTimestamp" in pod["metadata"] for pod in pods)
    listed = whole_cluster.moor("conformance").stdout
    assert any(line.split()[:3:2] == [name, "native"] for line in listed.splitlines())


def test_gvisor_is_sandboxed_and_no_virtual_machine(whole_cluster: RunningCluster) -> None:
    skip_without_gvisor()
    result = _test(whole_cluster, "gvisor")
    assert result["conforms_to"] == ["sandboxed"], result
    assert _verdicts(result)["own-machine"] == "failed"
    assert _annotations(whole_cluster, "gvisor")[CONFORMANCE_ANNOTATION] == "sandboxed"


def test_a_handler_that_lies_about_its_kernel_is_not_sandboxed(
    whole_cluster: RunningCluster, tmp_path: Path
) -> None:
    with odd_class(whole_cluster, tmp_path, LIES_ABOUT_ITS_KERNEL) as name:
        done = whole_cluster.moor("conformance", name, "--as", "sandboxed", status=1)
        assert "9.9-sandboxed" in done.stdout
        assert "does not conform to sandboxed" in done.stderr
        assert CONFORMANCE_ANNOTATION not in _annotations(whole_cluster, name)


def test_a_probe_that_hangs_is_cut_off_and_the_others_are_judged(
    whole_cluster: RunningCluster, tmp_path: Path
) -> None:
    with odd_class(whole_cluster, tmp_path, HANGS) as name:
        result = _test(whole_cluster, name, "--timeout", "8")
        assert result["conforms_to"] == []
        verdicts = _verdicts(result)
        assert verdicts["runs"] == "untested"
        assert verdicts["shared-kernel"] == "passed"
        evidence = result["properties"][0]["evidence"]
        assert evidence.startswith("cut off after 8 s")


def test_a_class_whose_handler_is_nowhere_proves_nothing(whole_cluster: RunningCluster) -> None:
    result = _test(whole_cluster, "kata", "--as", "native", "--timeout", "2", status=1)
    assert set(_verdicts(result).values()) == {"untested"}
    assert "kata" in result["properties"][0]["evidence"]


def test_a_report_is_written_to_a_file(whole_cluster: RunningCluster, tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    whole_cluster.moor(
        "conformance", "crun", "--as", "offline", "--dry-run",
        "--format", "junit", "--report", str(path), status=1,
    )  # fmt: skip
    suite = ElementTree.fromstring(path.read_text())
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
