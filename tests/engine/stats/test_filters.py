from __future__ import annotations

from typing import Any

import pytest

from moorage.engine.stats import select_containers, select_sandboxes
from moorage.wire.cri import pb
from tests.engine.stats.subjects import container, sandbox

CONTAINERS = (container("ab1"), container("ab2", sandbox_id="s2", labels={}), container("cd"))


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({}, ["ab1", "ab2", "cd"]),
        ({"id": "cd"}, ["cd"]),
        ({"id": "ab"}, ["ab1", "ab2"]),
        ({"id": "ab", "pod_sandbox_id": "s2"}, ["ab2"]),
        ({"label_selector": {"role": "web"}}, ["ab1", "cd"]),
        ({"label_selector": {"role": "web", "more": ""}}, []),
        ({"id": "x"}, []),
    ],
)
def test_containers_that_meet_every_part(wanted: dict[str, Any], ids: list[str]) -> None:
    chosen = select_containers(CONTAINERS, pb.ContainerStatsFilter(**wanted))
    assert [subject.id for subject in chosen] == ids


def test_no_filter_is_met_by_all() -> None:
    assert len(select_containers(CONTAINERS, None)) == 3
    assert len(select_sandboxes([sandbox()], None)) == 1


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [({}, ["s1", "s2"]), ({"id": "s2"}, ["s2"]), ({"label_selector": {"role": "web"}}, ["s1"])],
)
def test_sandboxes_that_meet_every_part(wanted: dict[str, Any], ids: list[str]) -> None:
    every = (sandbox("s1"), sandbox("s2", labels={}))
    chosen = select_sandboxes(every, pb.PodSandboxStatsFilter(**wanted))
    assert [subject.id for subject in chosen] == ids
