"""Where an engine keeps what: another version of it must find the same."""

from __future__ import annotations

from pathlib import Path

from moorage.engine.paths import EnginePaths


def test_what_outlives_a_reboot_is_where_an_earlier_version_put_it() -> None:
    paths = EnginePaths(Path("/data"), Path("/run/m"))
    assert paths.images == Path("/data/images")
    assert paths.handlers == Path("/data/handlers.d")
    assert paths.sandbox_records == Path("/data/sandboxes")
    assert paths.container_records == Path("/data/containers")
    assert paths.lock.name == "engine.lock"
