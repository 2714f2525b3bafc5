"""logind through systemd's own programs, against a fake logind on a private bus."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.node.shutdown import Logind, LogindError
from tests.clocks import QuickClock
from tests.node.shutdown.fake_logind import IS_MISSING, FakeLogind, bus, logind_on

pytestmark = pytest.mark.skipif(IS_MISSING, reason="needs dbus-daemon and systemd's programs")


@pytest.fixture
def environment() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture
async def fake(tmp_path: Path, environment: dict[str, str]) -> AsyncIterator[FakeLogind]:
    async with bus(tmp_path) as path, logind_on(path, tmp_path / "conf.d") as logind:
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = f"unix:path={path}"
        yield logind


@pytest.fixture
def logind(tmp_path: Path, environment: dict[str, str]) -> Logind:
    return Logind(QuickClock(), tmp_path / "conf.d", environment)


async def test_a_lock_delays_a_shutdown_until_it_is_released(
    fake: FakeLogind, logind: Logind
) -> None:
    lock = await logind.inhibit()
    ((what, who, _, mode),) = fake.asked
    assert (what, who, mode) == ("shutdown", "moorage", "delay")
    assert len(fake.held) == 1
    await lock.release()
    await fake.until(lambda: not fake.held)
    await lock.release()


async def test_no_lock_is_given_while_a_shutdown_is_in_progress(
    fake: FakeLogind, logind: Logind
) -> None:
    fake.is_shutting_down = True
    with pytest.raises(LogindError, match=r"systemd-inhibit: .*already running"):
        await logind.inhibit()
    assert not fake.held


async def test_announcements_of_logind_alone_are_followed(
    fake: FakeLogind, logind: Logind, environment: dict[str, str]
) -> None:
    async with logind.events() as events:
        impostor = await asyncio.create_subprocess_exec(
            "busctl", "emit", "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
            "PrepareForShutdown", "b", "false", env=environment,
        )  # fmt: skip
        assert await impostor.wait() == 0
        await fake.announce(True)
        await fake.announce(False)
        async with asyncio.timeout(20):
            assert [await anext(events), await anext(events)] == [True, False]


async def test_a_longer_delay_is_allowed_by_a_drop_in_file(
    fake: FakeLogind, logind: Logind, tmp_path: Path
) -> None:
    await logind.allow_delay(5)
    assert (fake.reloads, (tmp_path / "conf.d").exists()) == (0, False)
    await logind.allow_delay(30)
    assert (fake.reloads, fake.delay_us) == (1, 30_000_000)
    file = tmp_path / "conf.d" / "99-moorage.conf"
    assert file.stat().st_mode & 0o777 == 0o644
    await logind.allow_delay(30)
    assert fake.reloads == 1


async def test_a_delay_that_logind_does_not_take_is_reported(
    fake: FakeLogind, logind: Logind
) -> None:
    fake.does_reload = False
    with pytest.raises(LogindError, match=r"InhibitDelayMaxSec stays below 30 .*restart systemd"):
        await logind.allow_delay(30)


async def test_events_end_with_the_bus(
    tmp_path: Path, environment: dict[str, str], logind: Logind
) -> None:
    async with bus(tmp_path) as path:
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = f"unix:path={path}"
        opened = logind.events()
        events = await opened.__aenter__()
    async with asyncio.timeout(20):
        assert [event async for event in events] == []
    await opened.__aexit__(None, None, None)


async def test_a_host_without_logind_is_reported(
    tmp_path: Path, environment: dict[str, str], logind: Logind
) -> None:
    async with bus(tmp_path) as path:
        environment["DBUS_SYSTEM_BUS_ADDRESS"] = f"unix:path={path}"
        for call in (logind.allow_delay(1), logind.inhibit()):
            with pytest.raises(LogindError, match=r"busctl: |systemd-inhibit: "):
                await call
    with pytest.raises(LogindError, match=r"busctl monitor: .*connect to bus"):
        async with logind.events():
            pass
    environment["PATH"] = str(tmp_path)
    for call in (logind.allow_delay(1), logind.inhibit()):
        with pytest.raises(LogindError, match=r"No such file or directory"):
            await call
