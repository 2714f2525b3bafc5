"""Objects of any kind as a server serves them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from moorage.api.errors import ExpiredError
from moorage.cluster.attach.manifests.identity import Obj
from moorage.cluster.attach.served_objects import ServedObjects


class Compacting(ServedObjects):
    """A server whose lists expire after two objects, as those do that are read slowly."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(cast(Any, None))
        self.names = names

    async def list(self, api_version: str, kind: str, **selectors: str) -> AsyncIterator[Obj]:
        del api_version, kind, selectors
        slow = 0
        for name in tuple(self.names):
            if slow == 2:
                raise ExpiredError("compacted")
            # What is done already takes no time.
            slow += name.islower()
            yield {"metadata": {"name": name}}


async def test_a_list_that_expires_meanwhile_is_read_again_until_all_is_done() -> None:
    served = Compacting(list("abcde"))

    async def change(obj: Obj) -> None:
        name = obj["metadata"]["name"]
        served.names[served.names.index(name)] = name.upper()

    await served.each("v1", "Pod", change)
    assert served.names == list("ABCDE")


async def test_a_list_that_gets_no_further_is_an_error() -> None:
    async def change(obj: Obj) -> None:
        del obj

    with pytest.raises(ExpiredError):
        await Compacting(list("abcde")).each("v1", "Pod", change)
