"""Quotas of classes: charged at admission, counted by the controller, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.admission.runtime_policies.cluster import (
    Server,
    add_three_runtimes,
    custom,
    serving_policies,
)

pytestmark = pytest.mark.slow


_PATH = "/apis/runtime.moorage.dev/v1alpha1/namespaces/default/runtimeclassquotas"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving_policies(tmp_path) as server:
        await add_three_runtimes(server)
        yield server


async def quota(server: Server, name: str, class_name: str, **hard: Any) -> None:
    """Create a quota, counted as its controller does it for an empty namespace."""
    amounts = {key.replace("_", "."): value for key, value in hard.items()}
    spec = {"className": class_name, "hard": amounts}
    await server.create(_PATH, custom("RuntimeClassQuota", name, spec=spec))
    used = dict.fromkeys(amounts, "0")
    await server.patch(f"{_PATH}/{name}/status", {"status": {"hard": amounts, "used": used}})


async def used(server: Server, name: str) -> dict[str, str]:
    answer = await server.running.ask("GET", f"{_PATH}/{name}")
    return dict(answer.json["status"]["used"])


def requesting(memory: str) -> dict[str, Any]:
    return {"container": {"resources": {"requests": {"memory": memory}}}}


async def test_pods_of_a_class_are_counted_with_their_overhead(server: Server) -> None:
    await quota(server, "q", "gvisor", pods=2, requests_memory="200Mi")
    pod = await server.pod("a", runtimeClassName="gvisor", **requesting("100Mi"))
    assert pod.status == 201
    assert await used(server, "q") == {"pods": "1", "requests.memory": "132Mi"}
    # Others are not counted, nor charged.
    assert (await server.pod("b", runtimeClassName="kata")).status == 201
    assert (await server.pod("c")).status == 201
    refused = await server.pod("d", runtimeClassName="gvisor", **requesting("50Mi"))
    assert refused.status == 403
    assert refused.json["message"] == (
        'pods "d" is forbidden: exceeded class quota: q (class gvisor), requested: '
        "requests.memory=82Mi, used: requests.memory=132Mi, limited: requests.memory=200Mi"
    )
    unstated = await server.pod("e", runtimeClassName="gvisor")
    assert (
        "failed class quota: q (class gvisor): must specify requests.memory for: c"
        in (unstated.json["message"])
    )


async def test_pods_that_come_at_once_do_not_overshoot(server: Server) -> None:
    await quota(server, "own", "gvisor", pods="7")
    await quota(server, "all", "*", pods="9")
    answers = await asyncio.gather(
        *(server.pod(f"g{number}", runtimeClassName="gvisor") for number in range(20)),
        *(server.pod(f"p{number}") for number in range(20)),
    )
    assert sum(answer.status == 201 for answer in answers) == 9
    assert {answer.status for answer in answers} == {201, 403}
    assert await used(server, "all") == {"pods": "9"}
    assert int((await used(server, "own"))["pods"]) <= 7


async def test_a_quota_that_is_not_counted_yet_lets_no_pod_pass(server: Server) -> None:
    spec = {"className": "legacy", "hard": {"pods": 1}}
    await server.create(_PATH, custom("RuntimeClassQuota", "new", spec=spec))
    refused = await server.pod("p")
    assert (
        "status unknown for class quota: new (class legacy), resources: pods; its"
        in (refused.json["message"])
    )
    assert (await server.pod("q", runtimeClassName="runc")).status == 201


@pytest.mark.parametrize("hard", [{"pods": "many"}, {}, {"pods": -1}])
async def test_a_quota_without_meaning_is_refused(server: Server, hard: dict[str, Any]) -> None:
    body = custom("RuntimeClassQuota", "bad", spec={"className": "a", "hard": hard})
    answer = await server.running.ask("POST", _PATH, body)
    assert answer.status == 422, answer.text
