"""A cluster's pods on an external engine: ended, or named where they cannot be."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from moorage.cluster.engine.external import end_pods
from moorage.cluster.errors import LeftoverError
from moorage.cluster.layout import Layout
from moorage.node.pod_facts.labels import OWNER, owner_of
from tests.cluster.test_settings import SETTINGS as ANY_SETTINGS
from tests.fake_crio import Behaviour, FakeCrio, serving

SETTINGS = msgspec.structs.replace(ANY_SETTINGS, cluster_id="c1", node_name="n1")
OURS = {OWNER: owner_of("c1", "n1")}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "data")


@pytest.fixture
def fake() -> FakeCrio:
    return FakeCrio(Behaviour())


async def test_only_sandboxes_of_the_cluster_are_removed(
    layout: Layout, fake: FakeCrio, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        fake.add(name, OURS)
    fake.add("of-another-cluster", {OWNER: owner_of("c2", "n1")})
    fake.add("of-a-kubelet", {})
    fake.add("earlier-of-another", {OWNER: "n1"})
    fake.add("earlier-of-ours", {OWNER: "n1"})
    (layout.pod_logs / "default_earlier-of-ours_earlier-of-ours").mkdir(parents=True)
    async with serving(fake, tmp_path) as endpoint:
        assert await end_pods(endpoint, layout, SETTINGS) == 3
        assert await end_pods(endpoint, layout, SETTINGS) == 0
    left = [sandbox.metadata.name for sandbox in fake.sandboxes.values()]
    assert left == ["of-another-cluster", "of-a-kubelet", "earlier-of-another"]


async def test_what_does_not_end_is_named_and_the_others_end(
    layout: Layout, fake: FakeCrio, tmp_path: Path
) -> None:
    fake.behaviour.stuck.add(fake.add("stuck", OURS))
    fake.add("other", OURS)
    async with serving(fake, tmp_path) as endpoint:
        with pytest.raises(
            LeftoverError, match=r"default/stuck \(sandbox s1\): .*does not end.*moor down"
        ):
            await end_pods(endpoint, layout, SETTINGS)
    assert list(fake.sandboxes) == ["s1"]


async def test_an_engine_that_is_away_leaves_pods_that_are_named(
    layout: Layout, tmp_path: Path
) -> None:
    for uid in ("u1", "u2"):
        (layout.node / "pods" / uid).mkdir(parents=True)
    (layout.pod_logs / "shop_web_u1").mkdir(parents=True)
    (layout.pod_logs / "shop_ended_u3").mkdir()
    endpoint = f"unix://{tmp_path}/none.sock"
    with pytest.raises(LeftoverError) as refused:
        await end_pods(endpoint, layout, SETTINGS)
    head, _, tail = str(refused.value).partition("(")
    assert head == f"the engine at {endpoint} cannot be reached "
    assert tail.endswith(
        "), so these pods may go on running there: shop/web, uid u2; start the engine and run "
        "`moor down` again, or leave the pods to it with `moor down --abandon-pods`"
    )


async def test_an_engine_that_is_away_matters_not_where_no_pod_was(
    layout: Layout, tmp_path: Path
) -> None:
    assert await end_pods(f"unix://{tmp_path}/none.sock", layout, SETTINGS) == 0
