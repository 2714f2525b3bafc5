from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from moorage.api.pods import Pod
from moorage.linux import id_register
from moorage.node.config.errors import ConfigError
from moorage.node.paths import NodePaths
from moorage.node.pods.user_namespaces import UserNamespaces
from tests.node.objects import a_pod


def pods(count: int) -> list[Pod]:
    return [a_pod(meta={"uid": f"uid-{index}"}) for index in range(count)]


def users(root: Path, most: int = 3, register: Path | None = None) -> UserNamespaces:
    return UserNamespaces(
        NodePaths(root, root / "logs"), max_pods=most, register=register or root / "register"
    )


async def firsts(namespaces: UserNamespaces, *wanted: Pod) -> list[int]:
    result = await asyncio.gather(*(namespaces.of(pod) for pod in wanted))
    return [mappings.uids[0].host_id for mappings in result]


async def test_no_two_pods_share_ids_and_none_has_the_nodes(tmp_path: Path) -> None:
    first_names = await firsts(users(tmp_path), *pods(3))
    assert sorted(first_names) == [65536, 131072, 196608]


async def test_a_range_is_the_same_for_users_and_groups(tmp_path: Path) -> None:
    mappings = await users(tmp_path).of(a_pod())
    assert list(mappings.uids) == list(mappings.gids)
    assert (mappings.uids[0].container_id, mappings.uids[0].length) == (0, 65536)


async def test_a_restarted_agent_hands_out_nothing_twice(tmp_path: Path) -> None:
    one, other, _ = pods(3)
    before = await firsts(users(tmp_path), one)
    assert await firsts(users(tmp_path), other, one) == [131072, *before]


async def test_the_file_is_the_kubelets(tmp_path: Path) -> None:
    await users(tmp_path).of(a_pod(meta={"uid": "u"}))
    mapping = [{"hostId": 65536, "containerId": 0, "length": 65536}]
    stored = json.loads((tmp_path / "pods/u/userns").read_text())
    assert [
        {key: id_range.get(key, 0) for key in mapping[0]} for id_range in stored["uidMappings"]
    ] == mapping
    assert stored["gidMappings"] == stored["uidMappings"]


async def test_a_range_is_free_again_when_its_pods_directory_is_gone(tmp_path: Path) -> None:
    one, other, _ = pods(3)
    namespaces = users(tmp_path, most=1)
    await namespaces.of(one)
    with pytest.raises(ConfigError, match="no free range of user ids is left for 1 pods"):
        await namespaces.of(other)
    (tmp_path / "pods/uid-0/userns").unlink()
    assert await firsts(namespaces, other) == [65536]


async def test_agents_of_several_clusters_share_no_ids(tmp_path: Path) -> None:
    register = tmp_path / "register"
    agents = [users(tmp_path / name, register=register) for name in ("a", "b", "c")]
    result = await asyncio.gather(*(firsts(agent, *pods(3)) for agent in agents))
    assert sorted(first for group in result for first in group) == [
        index * 65536 for index in range(1, 10)
    ]
    # A pod keeps its range when its agent starts again.
    assert await firsts(users(tmp_path / "b", register=register), *pods(3)) == result[1]


async def test_ids_of_a_cluster_that_is_gone_are_free_again(tmp_path: Path) -> None:
    register, gone = tmp_path / "register", tmp_path / "a"
    await firsts(users(gone, register=register), *pods(3))
    other = users(tmp_path / "b", register=register)
    assert await firsts(other, pods(1)[0]) == [4 * 65536]
    shutil.rmtree(gone)
    assert await firsts(other, *pods(3)) == [4 * 65536, 65536, 131072]
    assert len(list(register.iterdir())) == 1


async def test_a_kubelets_pods_on_the_machine_have_ids_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await firsts(users(tmp_path / "kubelet"), *pods(2))
    monkeypatch.setattr(id_register, "KUBELET_PODS", tmp_path / "kubelet/pods")
    assert await firsts(users(tmp_path / "a"), *pods(1)) == [3 * 65536]


async def test_deleted_data_leaves_no_register(tmp_path: Path) -> None:
    register = tmp_path / "register"
    places = [tmp_path / name for name in ("a", "b")]
    for place in places:
        await firsts(users(place, register=register), *pods(1))
    for place in places:
        assert register.is_dir()
        shutil.rmtree(place)
        id_register.forget(place / "pods", register)
    assert not register.exists()
    id_register.forget(places[0] / "pods", register)
