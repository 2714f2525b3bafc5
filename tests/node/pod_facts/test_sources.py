from __future__ import annotations

from moorage.node.pod_facts.sources import is_mirror, is_static
from tests.node.objects import a_pod


def test_static_and_mirror_pods_are_recognized_by_annotations() -> None:
    plain = a_pod()
    static = a_pod(meta={"annotations": {"kubernetes.io/config.source": "file"}})
    mirror = a_pod(meta={"annotations": {"kubernetes.io/config.mirror": "x"}})
    assert [is_static(pod) for pod in (plain, static, mirror)] == [False, True, False]
    assert [is_mirror(pod) for pod in (plain, static, mirror)] == [False, False, True]
