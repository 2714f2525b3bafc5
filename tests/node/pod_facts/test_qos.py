from __future__ import annotations

from moorage.node.pod_facts.containers import pod_qos_class
from tests.node.objects import a_pod


def test_the_stored_quality_comes_first() -> None:
    assert pod_qos_class(a_pod(status={"qosClass": "Guaranteed"})) == "Guaranteed"
    assert pod_qos_class(a_pod()) == "BestEffort"
