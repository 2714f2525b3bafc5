from __future__ import annotations

from moorage.node.pod_facts.sources import format_pod
from tests.node.objects import UID, a_pod


def test_a_pod_in_messages() -> None:
    assert format_pod(a_pod()) == f"web_shop({UID})"
