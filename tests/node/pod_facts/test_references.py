from __future__ import annotations

from moorage.node.pod_facts.references import described
from tests.node.objects import UID, a_pod


def test_a_pod_in_messages() -> None:
    assert described(a_pod()) == f"web_shop({UID})"
