from __future__ import annotations

from typing import Any

import pytest

from moorage.node.pod_facts.grace import grace_period_s
from tests.node.objects import a_pod


@pytest.mark.parametrize(
    ("spec", "meta", "wanted"),
    [
        ({}, {}, 30),
        ({"terminationGracePeriodSeconds": 5}, {}, 5),
        ({"terminationGracePeriodSeconds": 0}, {}, 0),
        ({"terminationGracePeriodSeconds": 5}, {"deletionGracePeriodSeconds": 0}, 0),
    ],
    ids=["default", "specified", "zero", "deletion says less"],
)
def test_grace_periods(spec: dict[str, Any], meta: dict[str, Any], wanted: int) -> None:
    assert grace_period_s(a_pod(meta=meta, **spec)) == wanted
