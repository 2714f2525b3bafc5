"""Objects without a name: an error of the client, whatever the kind."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.apiserver.registry.rules import BASES, KINDS
from tests.apiserver.running_server import Running, serving

ACCOUNT = {"metadata": {"name": "default"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("nameless")) as running:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        assert (await running.ask("POST", accounts, ACCOUNT)).status == 201
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind_name", sorted(BASES))
async def test_an_object_without_a_name_is_refused(server: Running, kind_name: str) -> None:
    kind = KINDS[kind_name]
    body = copy.deepcopy(BASES[kind_name])
    del body["metadata"]["name"]
    place = "namespaces/default/" if kind.is_namespaced else ""
    version = kind.storage.api_version
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    answer = await server.ask("POST", f"{root}/{place}{kind.plural}", body)
    assert 400 <= answer.status < 500, answer.text
    assert "name" in answer.json["message"]
