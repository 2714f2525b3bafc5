"""Whole configurations of containerd, key by key, against a recorded table."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.containerd_configuration import NATIVE, write_configuration
from tests.containerd_configuration.test_configuration import CONFIGURATION, GVISOR, NEW, OLD, RUNC
from tests.recording import assert_recorded


def _flat(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(item, f"{place} {key}")
    else:
        yield place, value


def test_every_key() -> None:
    table: dict[str, Any] = {}
    changed = replace(
        CONFIGURATION, snapshotter=NATIVE, uses_systemd_cgroups=True, restricts_oom_score=True,
        oom_score=-999, registry_hosts=Path("/data/hosts"), stream_address="192.0.2.1",
        stream_port=4711, log_level="debug",
        runtimes=(
            replace(RUNC, program=None), replace(RUNC, handler="b", root=None),
            replace(GVISOR, configuration=Path("/etc/runsc.toml")),
        ),
    )  # fmt: skip
    for name, configuration in (("plain", CONFIGURATION), ("changed", changed)):
        for version in (OLD, NEW):
            document = tomllib.loads(write_configuration(configuration, version))
            table |= _flat(document, f"{name} {version}")
    assert_recorded("containerd_configuration/configuration", table)


def test_a_configuration_without_handlers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"none of the handlers \(none\)"):
        write_configuration(replace(CONFIGURATION, runtimes=()), NEW)
