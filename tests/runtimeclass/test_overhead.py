from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.pods import PodSpec
from moorage.api.quantity import to_texts
from moorage.runtimeclass import pod_limits, pod_requests


def container(cpu: str, *, restart: str | None = None, limit: str = "") -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": cpu}}
    if limit:
        resources["limits"] = {"cpu": limit}
    return {"name": "c", "resources": resources} | ({"restartPolicy": restart} if restart else {})


REQUESTS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"overhead": {"cpu": "200m"}}, "200m"),
    ({"containers": [container("100m"), container("200m")]}, "300m"),
    ({"containers": [container("100m")], "overhead": {"cpu": "200m"}}, "300m"),
    ({"containers": [container("100m")], "initContainers": [container("1")]}, "1"),
    (
        {
            "containers": [container("100m")],
            "initContainers": [container("50m", restart="Always"), container("200m")],
        },
        "250m",
    ),
    (
        {
            "containers": [container("300m")],
            "initContainers": [container("200m"), container("50m", restart="Always")],
        },
        "350m",
    ),
    (
        {
            "containers": [container("100m")],
            "resources": {"requests": {"cpu": "1"}},
            "overhead": {"cpu": "200m"},
        },
        "1200m",
    ),
]


@pytest.mark.parametrize(("spec", "cpu"), REQUESTS)
def test_requests_are_containers_or_their_init_peak_plus_overhead_once(
    spec: dict[str, Any], cpu: str | None
) -> None:
    requests = to_texts(pod_requests(msgspec.convert(spec, PodSpec)))
    assert requests.get("cpu") == cpu


def test_a_resource_named_only_by_overhead_is_charged() -> None:
    spec = PodSpec(overhead={"example.com/x": "3"})
    assert to_texts(pod_requests(spec)) == {"example.com/x": "3"}


def test_limits_get_overhead_only_where_a_limit_is_set() -> None:
    spec = msgspec.convert(
        {
            "containers": [container("100m", limit="200m")],
            "overhead": {"cpu": "50m", "memory": "10Mi"},
        },
        PodSpec,
    )
    assert to_texts(pod_limits(spec)) == {"cpu": "250m"}
