"""The installer of a node's own engine after a run that was killed."""

from __future__ import annotations

from pathlib import Path

from moorage.cluster.engine.target import Target, installer_of
from moorage.cluster.layout import Layout
from moorage.runtimes.installing.engines import FileChange
from moorage.runtimes.installing.journal import Entry, Journal, Stage


async def test_what_a_killed_run_added_is_undone_before_anything_is_asked(tmp_path: Path) -> None:
    layout, handlers, reports = Layout(tmp_path), tmp_path / "handlers.d", list[str]()
    handlers.mkdir()
    file = handlers / "h.toml"
    file.write_bytes(b"# Written by `moor runtime`: version 1, from binary.\n")
    version = layout.runtimes / "h" / "1"
    version.mkdir(parents=True)
    Journal(layout.runtimes).write(
        Entry(
            handler="h", verb="add", stage=Stage.USED, directory=str(version),
            changes=(FileChange(file, None, file.read_bytes()),),
        )
    )  # fmt: skip
    target = Target(endpoint=f"unix://{tmp_path}/none", layout=layout, handlers=handlers)
    async with installer_of(target, restart_command=(), report=reports.append) as installer:
        assert await installer.engine.written() == frozenset()
    assert not file.exists()
    assert not version.exists()
    assert reports == ["an interrupted `moor runtime add h` was undone"]
