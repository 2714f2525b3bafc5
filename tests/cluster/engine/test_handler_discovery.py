"""What the node's discovery knows of our engine's handlers, from their files."""

from __future__ import annotations

from pathlib import Path

from moorage.cluster.engine.handler_discovery import known_handlers
from moorage.wire.cri import engine_pb

SHIM = """binary = "/opt/shim"
adapter = "shim"
[options]
runtime_type = "io.containerd.{name}.v2"
"""


def test_the_files_that_a_verdict_depends_on_are_watched(tmp_path: Path) -> None:
    texts = {
        "runc": 'binary = "/opt/shim"\nadapter = "oci"\n',
        "kata": SHIM.format(name="kata") + 'config_path = "/etc/kata.toml"\n',
        "behind": SHIM.format(name="runc") + 'runtime_binary = "/opt/runc"\n',
        "broken": "=",
    }
    reported = []
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text)
        reported.append(
            engine_pb.Handler(
                name=name, program="/opt/shim", is_available=True, file=f"{tmp_path}/{name}.toml"
            )
        )
    known = known_handlers(engine_pb.Handlers(handlers=reported))
    assert {handler.name: [str(path) for path in handler.programs] for handler in known} == {
        "runc": ["/opt/shim"],
        "kata": ["/opt/shim", "/etc/kata.toml"],
        "behind": ["/opt/shim", "/opt/runc"],
        "broken": ["/opt/shim"],
    }
