"""From handlers to an engine's tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.handlers import Handler
from tests.containerd_configuration import RuntimeTable
from tests.containerd_configuration.tables import NoHandlerError, default_handler, runtime_tables

RUNC = Handler(handler="runc", runtime="runc", path="/usr/sbin/runc", available=True)
CRUN = Handler(handler="crun", runtime="crun", path="/usr/bin/crun", available=True)
GVISOR = Handler(handler="gvisor", runtime="runsc", path="/usr/bin/runsc", available=True)
KATA = Handler(
    handler="kata-qemu",
    runtime="kata-qemu",
    path="/usr/bin/containerd-shim-kata-v2",
    available=True,
    configuration="/etc/kata/qemu.toml",
)
NO_RUNC = Handler(handler="runc", runtime="runc", reason="not there", remedy="install it")


def test_only_available_handlers_get_tables() -> None:
    tables = runtime_tables((NO_RUNC, CRUN, GVISOR, KATA), Path("/run/x"))
    assert tables == (
        RuntimeTable(handler="crun", program=Path("/usr/bin/crun"), root=Path("/run/x/crun")),
        RuntimeTable(handler="gvisor", shim_type="io.containerd.runsc.v1"),
        RuntimeTable(
            handler="kata-qemu",
            shim_type="io.containerd.kata.v2",
            configuration=Path("/etc/kata/qemu.toml"),
        ),
    )


@pytest.mark.parametrize(
    ("handlers", "expected"), [((CRUN, RUNC), "crun"), ((NO_RUNC, GVISOR, CRUN), "crun")]
)
def test_the_first_plain_runtime_is_the_default(
    handlers: tuple[Handler, ...], expected: str
) -> None:
    assert default_handler(handlers) == expected


def test_without_a_plain_runtime_the_reasons_are_listed() -> None:
    with pytest.raises(NoHandlerError, match=r"runc: not there \(install it\)"):
        default_handler((NO_RUNC, GVISOR))
