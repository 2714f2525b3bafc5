"""Tokens in Secrets: their use is noted once a day, marked ones are refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moorage.api.configuration import Secret, parse_day
from moorage.api.meta import ObjectMeta
from moorage.apiserver.server.token_uses import MOST_WAITING, TokenUses
from tests.apiserver.running_server import Running, serving
from tests.clocks import FakeClock

CORE = "/api/v1/namespaces/default"
TRACKING = (
    "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking"
)
TYPE = "kubernetes.io/service-account-token"
LAST_USED = "kubernetes.io/legacy-token-last-used"
INVALID = {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}
MERGE = {"Content_Type": "application/merge-patch+json"}


async def asked(server: Running, method: str, path: str, body: Any = None, **how: Any) -> Any:
    answer = await server.ask(method, path, body, **how)
    assert answer.status in (200, 201), answer.text
    return answer.json


async def token_of(server: Running) -> str:
    """A Secret `s` of account `sa`, and the token that is bound to it."""
    await asked(server, "POST", f"{CORE}/serviceaccounts", {"metadata": {"name": "sa"}})
    annotations = {"kubernetes.io/service-account.name": "sa"}
    secret = {"metadata": {"name": "s", "annotations": annotations}, "type": TYPE}
    await asked(server, "POST", f"{CORE}/secrets", secret)
    bound = {"kind": "Secret", "apiVersion": "v1", "name": "s"}
    body = {"spec": {"boundObjectRef": bound}}
    answer = await asked(server, "POST", f"{CORE}/serviceaccounts/sa/token", body)
    return str(answer["status"]["token"])


async def whoami(server: Running, token: str) -> int:
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    return (await server.ask("POST", review, {}, token=token)).status


async def test_a_use_is_noted_and_a_marked_token_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, runs=True) as server:
        today = datetime.now(UTC).date().isoformat()
        assert (await asked(server, "GET", TRACKING))["data"] == {"since": today}
        token = await token_of(server)
        assert await whoami(server, token) == 201
        async with asyncio.timeout(10):
            while True:
                secret = await asked(server, "GET", f"{CORE}/secrets/s")
                if secret["metadata"].get("labels", {}).get(LAST_USED) == today:
                    break
                await asyncio.sleep(0.01)
        await asked(
            server, "PATCH", f"{CORE}/secrets/s", {"metadata": {"labels": INVALID}}, **MERGE
        )
        review = {"spec": {"token": token}}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        assert not (await asked(server, "POST", path, review))["status"].get("authenticated")


async def test_a_token_ends_with_its_secret(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        token = await token_of(server)
        await asked(server, "DELETE", f"{CORE}/secrets/s")
        assert await whoami(server, token) == 401


async def test_the_start_of_tracking_is_repaired(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        body = {"data": {"since": "long ago", "other": "x"}}
        await asked(server, "PATCH", TRACKING, body, **MERGE)
    async with serving(tmp_path) as server:
        data = (await asked(server, "GET", TRACKING))["data"]
        assert parse_day(data["since"]) is not None
        assert data["other"] == "x"


def secret(secret_type: str = TYPE, **labels: str) -> Secret:
    return Secret(metadata=ObjectMeta(name="s", labels=labels), type=secret_type)


@pytest.mark.parametrize(
    ("found", "is_usable", "is_waiting"),
    [
        (None, True, False),
        (secret("Opaque"), True, False),
        (secret(), True, True),
        (secret(**{LAST_USED: "2026-01-01"}), True, False),
        (secret(**{LAST_USED: "2026-01-02"}), True, False),
        (secret(**{LAST_USED: "2025-12-31"}), True, True),
        (secret(**INVALID), False, True),
    ],
)
async def test_what_is_noted(found: Secret | None, *, is_usable: bool, is_waiting: bool) -> None:
    uses = TokenUses(lambda *_: found, FakeClock())
    assert uses.is_usable("default", "s") is is_usable
    assert bool(uses._waiting) is is_waiting


@pytest.mark.parametrize(
    ("found", "token"),
    [
        (None, None),
        (Secret(type=TYPE, data={"token": "YWJj"}), "abc"),
        (Secret(type=TYPE), ""),
        (Secret(type=TYPE, data={"token": "!"}), None),
        (Secret(type=TYPE, data={"token": "/w=="}), None),
        (Secret(type="Opaque", data={"token": "YWJj"}), None),
        (Secret(ObjectMeta(deletion_timestamp="2026-01-01T00:00:00Z"), type=TYPE,
                data={"token": "YWJj"}), None),
    ],
)  # fmt: skip
async def test_the_token_in_a_secret(found: Secret | None, token: str | None) -> None:
    assert TokenUses(lambda *_: found, FakeClock()).find_token("ns", "s") == token


async def test_notes_that_wait_are_bounded() -> None:
    uses = TokenUses(lambda *_: secret(), FakeClock())
    for number in range(MOST_WAITING + 10):
        assert uses.is_usable("default", f"s{number}")
    assert len(uses._waiting) == MOST_WAITING


@pytest.mark.parametrize(
    ("text", "is_day"),
    [("2026-01-31", True), ("2026-02-30", False), ("20260131", False), ("", False)],
)
def test_days(text: str, *, is_day: bool) -> None:
    assert (parse_day(text) is not None) is is_day
