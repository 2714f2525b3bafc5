"""Field managers of nodes."""

from __future__ import annotations

from moorage.api.runtime_installations import node_manager


def test_each_node_has_a_field_manager_of_its_own() -> None:
    assert node_manager("a") == "moorage-node-a"
    long = ["x" * 200 + end for end in ("a", "b")]
    managers = {node_manager(name) for name in long}
    assert len(managers) == 2
    assert all(len(manager) <= 128 for manager in managers)
