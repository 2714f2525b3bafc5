"""Where ports of a sandbox are: in its network namespace, or in a guest behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.handlers import parse_definition
from moorage.engine.sandboxes.state import listens_elsewhere

_RUNSC = 'adapter = "runsc"\nbinary = "runsc"\n[options]\n'
_SHIM = 'adapter = "shim"\nbinary = "x"\n[options]\nruntime_type = "io.containerd.%s"\n'


@pytest.mark.parametrize(
    ("definition", "is_elsewhere"),
    [
        ('adapter = "oci"\nbinary = "runc"\n', False),
        (_RUNSC, True),
        (_RUNSC + 'network = "sandbox"\n', True),
        (_RUNSC + 'network = "host"\n', False),
        (_RUNSC + 'global_arguments = ["--network=host"]\n', False),
        (_SHIM % "runc.v2", False),
        (_SHIM % "kata.v2", True),
        (_SHIM % "wasmtime.v1" + "needs_sandbox = false\n", False),
    ],
)
def test_servers_of_a_guest_listen_in_it(definition: str, is_elsewhere: bool) -> None:
    parsed = parse_definition(Path("/h/x.toml"), definition.encode())
    assert listens_elsewhere(parsed) is is_elsewhere
