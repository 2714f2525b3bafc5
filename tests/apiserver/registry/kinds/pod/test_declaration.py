"""What a pod declares beyond its rules."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.kinds.pod import POD


@pytest.mark.parametrize(
    ("spec", "status", "asked", "seconds"),
    [
        ({"nodeName": "n"}, {}, None, 30),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 5}, {}, None, 5),
        ({"nodeName": "n"}, {}, 7, 7),
        ({"nodeName": "n"}, {}, 0, 0),
        ({"nodeName": "n"}, {}, -1, 1),
        ({}, {}, 7, 0),
        ({"nodeName": "n"}, {"phase": "Succeeded"}, 7, 0),
        ({"nodeName": "n"}, {"phase": "Failed"}, None, 0),
    ],
)
def test_a_pod_gets_time_to_end_while_it_runs(
    spec: dict[str, object], status: dict[str, str], asked: int | None, seconds: int
) -> None:
    grace = POD.strategy.grace_seconds
    assert grace is not None
    assert grace({"spec": spec, "status": status}, asked) == seconds
