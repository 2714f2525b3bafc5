"""Whose process namespace a container joins: that of a running container of the same pod."""

from __future__ import annotations

import msgspec
import pytest

from moorage.engine.containers.bundle import find_target_pid
from moorage.engine.errors import InvalidError, NotFoundError, PreconditionError
from moorage.engine.inventory import Container, Inventory, Sandbox
from moorage.engine.paths import EnginePaths
from moorage.engine.records import Stage
from moorage.wire.cri import pb
from tests.engine.test_inventory import container, paths, sandbox

__all__ = ["paths"]


def running(inventory: Inventory, above: Sandbox, container_id: str, pid: int) -> Container:
    made = container(above, container_id, name=container_id)
    inventory.containers.add(made)
    made.record = msgspec.structs.replace(made.record, pid=pid, stage=Stage.RUNNING)
    return made


def options(mode: pb.NamespaceMode.ValueType, target: str) -> pb.NamespaceOption:
    return pb.NamespaceOption(pid=mode, target_id=target)


def test_a_container_of_another_pod_is_never_joined(paths: EnginePaths) -> None:
    inventory = Inventory(paths)
    mine, other = sandbox("s1", "one"), sandbox("s2", "two")
    running(inventory, mine, "c1", 11)
    running(inventory, other, "c2", 22)
    assert find_target_pid(options(pb.TARGET, "c1"), inventory, mine) == 11
    assert find_target_pid(options(pb.TARGET, "c2"), inventory, other) == 22
    with pytest.raises(InvalidError, match="target container c2 is not in sandbox s1"):
        find_target_pid(options(pb.TARGET, "c2"), inventory, mine)
    with pytest.raises(NotFoundError):
        find_target_pid(options(pb.TARGET, "c3"), inventory, mine)


@pytest.mark.parametrize("mode", [pb.POD, pb.CONTAINER, pb.NODE])
def test_without_that_wish_no_container_is_looked_for(
    paths: EnginePaths, mode: pb.NamespaceMode.ValueType
) -> None:
    inventory = Inventory(paths)
    mine = sandbox("s1", "one")
    running(inventory, mine, "c1", 11)
    assert find_target_pid(options(mode, "c1"), inventory, mine) is None


def test_a_container_that_does_not_run_cannot_be_joined(paths: EnginePaths) -> None:
    inventory = Inventory(paths)
    mine = sandbox("s1", "one")
    made = container(mine, "c1")
    inventory.containers.add(made)
    with pytest.raises(PreconditionError, match="target container c1 is not running"):
        find_target_pid(options(pb.TARGET, "c1"), inventory, mine)
