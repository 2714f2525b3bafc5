"""The plugin's second run, after a webhook's change: it stands what the first run chose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.apiserver.admission.runtime_policies import RuntimePolicyAdmission
from moorage.apiserver.admission.runtime_policies.sources import RuntimeFacts
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.request import Reinvocation
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored, StoredFactory
from moorage.apiserver.storage import SqliteStore, WatchCache
from tests.apiserver.admission.writes import pod, write

_CHOSEN = {
    "runtime.moorage.dev/class-choice": "fitted",
    "runtime.moorage.dev/class-choice-reason": "class gvisor is the cheapest that offers gpu",
}


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[RuntimePolicyAdmission]:
    async with SqliteStore(tmp_path / "state.db") as store:
        cache: WatchCache[Stored] = WatchCache(store, StoredFactory(STORED_KINDS))
        await cache.load()
        yield RuntimePolicyAdmission(RuntimeFacts(cache, ResourceMap(STORED_KINDS)))


@pytest.mark.parametrize(
    ("is_second", "class_name", "is_kept"),
    [
        (False, "gvisor", False),
        (True, "gvisor", True),
        # A webhook named another class, or none: that is explicit.
        (True, "kata", False),
        (True, "", False),
    ],
)
async def test_a_choice_stays_while_the_class_does(
    plugin: RuntimePolicyAdmission, is_second: bool, class_name: str, is_kept: bool
) -> None:
    spec = {"runtimeClassName": class_name} if class_name else {}
    attributes = write(obj=pod(spec, annotations=dict(_CHOSEN)))
    attributes.reinvocation = Reinvocation(is_second=is_second)
    plugin.mutate(attributes)
    assert attributes.obj is not None
    assert attributes.obj["metadata"].get("annotations") == (_CHOSEN if is_kept else None)
    assert attributes.obj["spec"].get("runtimeClassName", "") == class_name
