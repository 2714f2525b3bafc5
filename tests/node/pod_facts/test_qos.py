from __future__ import annotations

from moorage.node.pod_facts.qos import quality
from tests.node.objects import a_pod


def test_the_stored_quality_comes_first() -> None:
    assert quality(a_pod(status={"qosClass": "Guaranteed"})) == "Guaranteed"
    assert quality(a_pod()) == "BestEffort"
