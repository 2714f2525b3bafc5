"""The webhook's certificate: rotation by overlap, and recovery, in memory."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from moorage.controllers.webhookcertificates import WebhookCertificateController, WebhookService
from moorage.controllers.webhookcertificates.controller import MUTATING, VALIDATING
from moorage.controllers.webhookcertificates.issuing import (
    LIFE,
    RENEW_BEFORE,
    TRUSTED_AFTER,
    UNUSED_AFTER,
    Certificates,
    Step,
    after_step,
    issue_pair,
    next_step,
    read_pair,
)
from moorage.wire.client.resources import SECRETS
from tests.clocks import START, settle
from tests.controllers.memory import Json, MemoryClient, World

SERVICE = WebhookService("hook", "ns")
HOSTS = frozenset(SERVICE.hosts)
DAY = timedelta(days=1)


def _issued(when: Any = START) -> Any:
    return issue_pair(SERVICE.hosts, when)


def test_a_rotation_goes_by_steps_and_each_waits_for_the_others_to_see_it() -> None:
    pair, other = _issued(), _issued(START + 60 * DAY)
    present = Certificates(pair, changed=START)
    assert next_step(present, HOSTS, START)[0] is Step.KEEP
    now = START + LIFE - RENEW_BEFORE + timedelta(seconds=1)
    assert next_step(present, HOSTS, now)[0] is Step.PREPARE
    prepared = after_step(present, Step.PREPARE, other, now)
    assert prepared.current == pair
    assert prepared.bundle == pair.authority + other.authority
    assert next_step(prepared, HOSTS, now) == (Step.KEEP, TRUSTED_AFTER)
    now += TRUSTED_AFTER
    assert next_step(prepared, HOSTS, now)[0] is Step.PROMOTE
    promoted = after_step(prepared, Step.PROMOTE, None, now)
    assert promoted.current == other
    assert promoted.bundle == other.authority + pair.authority
    assert next_step(promoted, HOSTS, now) == (Step.KEEP, UNUSED_AFTER)
    now += UNUSED_AFTER
    assert next_step(promoted, HOSTS, now)[0] is Step.RETIRE
    assert after_step(promoted, Step.RETIRE, None, now).bundle == other.authority


@pytest.mark.parametrize(
    ("present", "hosts", "age"),
    [
        (Certificates(), HOSTS, timedelta()),
        (Certificates(_issued()), frozenset({"other"}), timedelta()),
        (Certificates(_issued()), HOSTS, LIFE),
        (Certificates(_issued(), _issued()), HOSTS, LIFE + DAY),
        # The clock of the process that issued it was ahead.
        (Certificates(_issued()), HOSTS, -DAY),
    ],
)
def test_what_cannot_be_served_is_issued_at_once(
    present: Certificates, hosts: frozenset[str], age: timedelta
) -> None:
    assert next_step(present, hosts, START + age)[0] is Step.ISSUE


def test_a_lost_time_of_the_last_step_only_delays_the_next() -> None:
    present = Certificates(_issued(), _issued())
    assert next_step(present, HOSTS, START)[0] is Step.KEEP
    known = after_step(present, Step.KEEP, None, START)
    assert next_step(known, HOSTS, START + TRUSTED_AFTER)[0] is Step.PROMOTE
    # The clock was set back.
    known = Certificates(known.current, known.next, changed=START + 5 * DAY)
    assert next_step(known, HOSTS, START + 4 * DAY) == (Step.KEEP, TRUSTED_AFTER)


def test_a_next_pair_that_is_not_valid_yet_is_made_again() -> None:
    present = Certificates(_issued(), _issued(START + DAY), changed=START)
    assert next_step(present, HOSTS, START + TRUSTED_AFTER)[0] is Step.PREPARE


def test_a_pair_is_read_back_and_a_damaged_one_is_none() -> None:
    pair, other = _issued(), _issued()
    assert read_pair(pair.certificate, pair.key, other.authority + pair.authority) == pair
    for damaged in (
        (pair.certificate, other.key, pair.authority),
        (pair.certificate, pair.key, other.authority),
        (pair.certificate[:-60], pair.key, pair.authority),
        ("", "", ""),
    ):
        assert read_pair(*damaged) is None


def configuration() -> Json:
    hooks = [{"name": f"{name}.example.com", "clientConfig": {}} for name in "ab"]
    return {"metadata": {"name": "moorage"}, "webhooks": hooks}


@pytest.fixture
def world() -> World:
    world = World()
    for resource in (MUTATING, VALIDATING):
        world.client.put(resource, configuration())
    return world


@asynccontextmanager
async def reconciling(world: World) -> AsyncIterator[MemoryClient]:
    controller = WebhookCertificateController(world.client, SERVICE, world.clock)
    async with world.running(controller.run()) as client:
        await world.settled(2)
        yield client


def data(client: MemoryClient) -> dict[str, str]:
    secret = client.find(SECRETS, SERVICE.secret, "ns")
    assert secret is not None
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


def bundles(client: MemoryClient) -> set[str]:
    return {
        base64.b64decode(hook["clientConfig"].get("caBundle", "")).decode()
        for resource in (MUTATING, VALIDATING)
        for hook in client.all(resource)[0]["webhooks"]
    }


async def test_a_certificate_is_issued_and_trusted_by_every_webhook(
    world: World, tmp_path: Any
) -> None:
    async with reconciling(world) as client:
        assert bundles(client) == {data(client)["ca.crt"]}
        for name, text in data(client).items():
            (tmp_path / name).write_text(text)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
        ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        client.requests.clear()
        world.clock.advance(3600)
        await settle(300)
        assert client.writes == []


async def test_an_edited_bundle_is_put_right(world: World) -> None:
    async with reconciling(world) as client:
        edited = client.all(MUTATING)[0]
        edited["webhooks"][0]["clientConfig"]["caBundle"] = "bm9uc2Vuc2U="
        client.put(MUTATING, edited)
        await world.settled(1)
        assert bundles(client) == {data(client)["ca.crt"]}


@pytest.mark.parametrize("how", ["deleted", "damaged", "other type"])
async def test_a_lost_certificate_is_replaced_and_the_old_one_stays_trusted(
    world: World, how: str
) -> None:
    async with reconciling(world) as client:
        before = data(client)
        secret = client.find(SECRETS, SERVICE.secret, "ns")
        assert secret is not None
        if how == "deleted":
            client.drop(SECRETS, SERVICE.secret, "ns")
        elif how == "damaged":
            client.put(SECRETS, {**secret, "data": {**secret["data"], "tls.key": "bm8="}})
        else:
            client.put(SECRETS, {**secret, "type": "Opaque", "data": {}})
        await world.settled(1)
        after = data(client)
        assert after["tls.crt"] != before["tls.crt"]
        # Replicas serve the old one until they see the file change.
        assert before["ca.crt"] in after["ca.crt"]
        await world.settled(1)
        assert bundles(client) == {after["ca.crt"]}
        await world.settled(3700)
        await world.settled(2)
        assert before["ca.crt"] not in data(client)["ca.crt"]
        assert bundles(client) == {data(client)["ca.crt"]}


@pytest.mark.slow
async def test_in_a_rotation_what_is_served_is_always_trusted(world: World) -> None:
    async with reconciling(world) as client:
        served = {data(client)["tls.crt"]}
        first = data(client)
        for _ in range(2 * 24 * 70):
            world.clock.advance(1800)
            await settle(30)
            now = data(client)
            # The replica that is behind still serves the one before.
            for certificate in (now["tls.crt"], first["tls.crt"]):
                pair_key = now["tls.key"] if certificate == now["tls.crt"] else first["tls.key"]
                assert all(
                    read_pair(certificate, pair_key, bundle) for bundle in bundles(client)
                ), "a certificate in use is not trusted"
            if now["tls.crt"] not in served:
                served.add(now["tls.crt"])
                break
        assert len(served) == 2


@pytest.mark.parametrize("age", [2 * LIFE, DAY], ids=["expired", "valid"])
async def test_a_secret_that_was_put_back_does_not_end_the_trust_in_what_is_served(
    world: World, age: timedelta
) -> None:
    async with reconciling(world) as client:
        served = data(client)["ca.crt"]
        backup = _issued(world.clock.now() - age)
        texts = {"tls.crt": backup.certificate, "tls.key": backup.key, "ca.crt": backup.authority}
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        await client.patch(SECRETS, SERVICE.secret, {"data": encoded}, "ns")
        await world.settled(5)
        (bundle,) = bundles(client)
        assert bundle == data(client)["ca.crt"]
        # Replicas serve the one before until they see the Secret in their files.
        assert served in bundle
        assert (backup.authority in bundle) == (age < LIFE)
        assert read_pair(data(client)["tls.crt"], data(client)["tls.key"], bundle) is not None


def test_an_authority_that_expired_takes_no_place_of_one_that_is_served() -> None:
    old = tuple(_issued(START + day * DAY).authority for day in (2, 1))
    issued = _issued(START + LIFE)
    present = Certificates(_issued(START - DAY), old=old)
    after = after_step(present, Step.ISSUE, issued, START + LIFE)
    assert after.old == old
