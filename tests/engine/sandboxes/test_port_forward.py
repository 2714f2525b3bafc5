"""Where ports of a sandbox are: in its network namespace, or in a guest behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.handlers import parse_definition
from moorage.engine.sandboxes.state import listens_elsewhere

_SHIM = 'adapter = "shim"\nbinary = "x"\n[options]\nruntime_type = "io.containerd.%s"\n'


@pytest.mark.parametrize(
    ("definition", "is_elsewhere"),
    [
        ('adapter = "oci"\nbinary = "runc"\n', False),
        ('adapter = "runsc"\nbinary = "runsc"\n', False),
        (_SHIM % "runc.v2", False),
        (_SHIM % "kata.v2", True),
        (_SHIM % "wasmtime.v1" + "needs_sandbox = false\n", False),
    ],
)
def test_servers_of_a_virtual_machine_listen_in_its_guest(
    definition: str, is_elsewhere: bool
) -> None:
    parsed = parse_definition(Path("/h/x.toml"), definition.encode())
    assert listens_elsewhere(parsed) is is_elsewhere
