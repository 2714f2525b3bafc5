"""Sources of policies: which rules a change makes read again."""

from __future__ import annotations

from pathlib import Path

from moorage.apiserver.admission.runtime_policies.sources import RuntimeFacts
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.kinds.core import NAMESPACE
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored, StoredFactory, to_value
from moorage.apiserver.storage import Change, SqliteStore, WatchCache


async def test_a_policy_of_a_namespace_makes_no_other_namespace_s_rules_read_again(
    tmp_path: Path,
) -> None:
    async with SqliteStore(tmp_path / "state.db") as store:
        for name in ("a", "b"):
            value = to_value({"metadata": {"name": name}})
            await store.put(NAMESPACE.key("", name), value, 0)
        cache: WatchCache[Stored] = WatchCache(store, StoredFactory(STORED_KINDS))
        await cache.load()
        facts = RuntimeFacts(cache, ResourceMap(STORED_KINDS))
        first = {name: facts.rules(name) for name in ("a", "b")}
        facts.changed([Change("runtimepolicies.runtime.moorage.dev/a/p", 9, b"")])
        assert facts.rules("a") is not first["a"]
        assert facts.rules("b") is first["b"]
        facts.changed([Change("clusterruntimepolicies.runtime.moorage.dev/p", 10, b"")])
        assert facts.rules("b") is not first["b"]
