"""Classes of handlers, and the record of those that had one."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import ConflictError
from moorage.runtimes.probing.default_classes import (
    MOST_CLASSES,
    RECORD,
    RECORD_NAMESPACE,
    complete_class,
    create_classes,
)
from moorage.wire.client.resources import CONFIG_MAPS, RUNTIME_CLASSES
from tests.clocks import FakeClock
from tests.controllers.memory import MemoryClient

_ISOLATION = "runtime.moorage.dev/isolation"


@pytest.fixture
def client() -> Any:
    return MemoryClient(FakeClock())


def recorded(client: MemoryClient) -> list[str]:
    record = client.find(CONFIG_MAPS, RECORD, RECORD_NAMESPACE)
    return [] if record is None else str(record["data"]["handlers"]).split()


async def test_each_handler_gets_a_class_once(client: Any) -> None:
    handlers = {"runc": "", "crun": "", "": ""}
    assert await create_classes(client, handlers) == ("crun", "runc")
    assert client.names(RUNTIME_CLASSES) == recorded(client) == ["crun", "runc"]
    record = client.find(CONFIG_MAPS, RECORD, RECORD_NAMESPACE)
    assert record["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "moorage"}
    client.drop(RUNTIME_CLASSES, "crun")
    client.requests.clear()
    assert await create_classes(client, handlers) == ()
    assert client.writes == []
    assert await create_classes(client, {**handlers, "kata": ""}) == ("kata",)
    assert recorded(client) == ["crun", "kata", "runc"]


async def test_a_record_that_another_writes_first_is_read_again(client: Any) -> None:
    await create_classes(client, {"crun": ""})
    conflict = ("update", "configmaps", ConflictError("changed"))
    client.failures.extend([conflict] * 4)
    assert await create_classes(client, {"runc": ""}) == ()
    assert recorded(client) == ["crun", "runc"]
    client.failures.extend([conflict] * 5)
    with pytest.raises(ConflictError, match=r"configmap kube-system/.* changes all the time"):
        await create_classes(client, {"kata": ""})


async def test_no_more_than_a_thousand_handlers_get_a_class(client: Any) -> None:
    record = {
        "metadata": {"name": RECORD, "namespace": RECORD_NAMESPACE},
        "data": {"handlers": "\n".join(f"h{number}" for number in range(MOST_CLASSES - 1))},
    }
    client.put(CONFIG_MAPS, record)
    assert await create_classes(client, {"a": "", "b": "", "h1": ""}) == ("a",)
    assert await create_classes(client, {"a": "", "b": "", "h1": ""}) == ()


async def test_a_managed_class_is_completed_and_no_other(client: Any) -> None:
    async def complete(isolation: str, **labels: str) -> bool:
        client.put(RUNTIME_CLASSES, {"metadata": {"name": "x", "labels": labels}, "handler": "x"})
        found = await client.get(RUNTIME_CLASSES, "x")
        return await complete_class(client, found, isolation)

    managed = {"runtime.moorage.dev/managed": "true"}
    assert not await complete("vm")
    assert not await complete("", **managed)
    assert await complete("vm", **managed)
    assert client.find(RUNTIME_CLASSES, "x")["metadata"]["labels"][_ISOLATION] == "vm"
    assert await complete("", **managed, **{_ISOLATION: "vm"})
    assert _ISOLATION not in client.find(RUNTIME_CLASSES, "x")["metadata"]["labels"]
