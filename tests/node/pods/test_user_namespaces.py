from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from moorage.api.pods import Pod
from moorage.node.config.errors import ConfigError
from moorage.node.paths import NodePaths
from moorage.node.pods.user_namespaces import UserNamespaces
from tests.node.objects import a_pod


def pods(count: int) -> list[Pod]:
    return [a_pod(meta={"uid": f"uid-{index}"}) for index in range(count)]


def users(root: Path, most: int = 3) -> UserNamespaces:
    return UserNamespaces(NodePaths(root, root / "logs"), max_pods=most)


async def firsts(namespaces: UserNamespaces, *wanted: Pod) -> list[int]:
    found = await asyncio.gather(*(namespaces.of(pod) for pod in wanted))
    return [each.uids[0].host_id for each in found]


async def test_no_two_pods_share_ids_and_none_has_the_nodes(tmp_path: Path) -> None:
    found = await firsts(users(tmp_path), *pods(3))
    assert sorted(found) == [65536, 131072, 196608]


async def test_a_range_is_the_same_for_users_and_groups(tmp_path: Path) -> None:
    found = await users(tmp_path).of(a_pod())
    assert list(found.uids) == list(found.gids)
    assert (found.uids[0].container_id, found.uids[0].length) == (0, 65536)


async def test_a_restarted_agent_hands_out_nothing_twice(tmp_path: Path) -> None:
    one, other, _ = pods(3)
    before = await firsts(users(tmp_path), one)
    assert await firsts(users(tmp_path), other, one) == [131072, *before]


async def test_the_file_is_the_kubelets(tmp_path: Path) -> None:
    await users(tmp_path).of(a_pod(meta={"uid": "u"}))
    mapping = [{"hostId": 65536, "containerId": 0, "length": 65536}]
    stored = json.loads((tmp_path / "pods/u/userns").read_text())
    assert [
        {key: each.get(key, 0) for key in mapping[0]} for each in stored["uidMappings"]
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
