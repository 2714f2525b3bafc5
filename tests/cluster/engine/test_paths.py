from __future__ import annotations

from pathlib import Path

from moorage.cluster.engine.paths import ClusterEnginePaths
from moorage.cluster.layout import RUN

DEEP = Path("/very", *["long directory name " * 10] * 8)


def test_the_socket_stays_short_however_deep_the_data_lies() -> None:
    paths = ClusterEnginePaths.of("0a1b2c3d", DEEP)
    assert len(str(paths.socket).encode()) <= 107
    assert paths.endpoint == "unix:///run/moorage/0a1b2c3d/engine.sock"
    assert paths.data == DEEP


def test_what_ends_with_a_reboot_is_not_with_the_data() -> None:
    paths = ClusterEnginePaths.of("0a1b2c3d", Path("data"))
    assert paths.data.is_absolute()
    engine = paths.engine
    for place in (engine.bundles, engine.runtimes, engine.namespaces, paths.leases, paths.socket):
        assert place.is_relative_to(paths.run)
        assert place.is_relative_to(RUN)
    for place in (engine.images, engine.handlers, engine.sandbox_records, paths.cni):
        assert place.is_relative_to(paths.data)
