"""Files of volumes that are in each other's way."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.warnings import overlap_warnings


def items(*paths: str) -> list[dict[str, str]]:
    return [{"key": "k", "path": path} for path in paths]


@pytest.mark.parametrize(
    ("volume", "warnings"),
    [
        ({"emptyDir": {}}, []),
        ({"configMap": {"name": "c", "items": items("a", "ab", "b/a")}}, []),
        ({"configMap": {"name": "c", "items": items("a", "a")}},
         ['(ConfigMap "c"): overlapping paths: "a" with "a"']),
        ({"configMap": {"name": "c", "items": items("a/b/c", "a", "")}},
         ['(ConfigMap "c"): overlapping paths: "a" with "a/b/c"']),
        ({"secret": {"secretName": "s", "items": items("a/", "a/b")}},
         ['(Secret "s"): overlapping paths: "a/b" with "a"']),
        ({"downwardAPI": {"items": items("a", "b", "a")}},
         ['(DownwardAPI): overlapping paths: "a" with "a"']),
        ({"projected": {"sources": [{}, {"secret": {"name": "s"}}]}},
         ["(Projected) has no sources provided"]),
        ({"projected": {}}, []),
        ({"projected": {"sources": [
            {"configMap": {"name": "c", "items": items("a")}},
            {"secret": {"name": "s", "items": items("b")}},
            {"downwardAPI": {"items": items("a/x")}},
            {"serviceAccountToken": {"path": "b"}},
            {"clusterTrustBundle": {"signerName": "example.com/s", "path": "c"}},
            {"podCertificate": {"keyPath": "c/key"}},
        ]}}, [
            '(Projected): overlapping paths: "a/x" (DownwardAPI) with "a" (ConfigMap "c")',
            '(Projected): overlapping paths: "b" (ServiceAccountToken) with "b" (Secret "s")',
            '(Projected): overlapping paths: "c/key" (PodCertificate key) with "c" '
            '(ClusterTrustBundle "example.com/s")',
        ]),
    ],
)  # fmt: skip
def test_overlaps(volume: dict[str, Any], warnings: list[str]) -> None:
    found = list(overlap_warnings([{"name": "v", **volume}]))
    assert found == [f'volume "v" {warning}' for warning in warnings]


def test_a_volume_of_many_files_is_compared_in_part() -> None:
    many = [{"name": "v", "configMap": {"name": "c", "items": items(*["a"] * 10_000)}}]
    assert len(list(overlap_warnings(many))) == 100 * 99 / 2
