"""Engine directories: one that persists, and one for runtime state.

    data/  images/ layers/…        the image store's
           sandboxes/ID.json       records of sandboxes
           containers/ID.json      records of containers
    run/   engine.sock             the CRI
           n/ID/                   pinned namespaces (see `moorage.linux.pinned`)
           s/ID/                   a sandbox's hostname, hosts, resolv.conf and shm
           b/ID/                   bundles: config.json, rootfs, files of conmon or a shim
           r/                      the runtimes' own state
           x/                      short-lived files and sockets
           exits/                  conmon's exit files

The names below `run` are short because a socket's path is limited to 107 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.linux.trust import PASSABLE, make_private


@dataclass(frozen=True, slots=True)
class EnginePaths:
    """The directories of an engine; `data` survives a reboot, `run` does not."""

    data: Path
    run: Path

    @property
    def images(self) -> Path:
        return self.data / "images"

    @property
    def handlers(self) -> Path:
        """The engine's own handler definitions."""
        return self.data / "handlers.d"

    @property
    def sandbox_records(self) -> Path:
        return self.data / "sandboxes"

    @property
    def container_records(self) -> Path:
        return self.data / "containers"

    @property
    def namespaces(self) -> Path:
        return self.run / "n"

    @property
    def bundles(self) -> Path:
        return self.run / "b"

    @property
    def runtimes(self) -> Path:
        return self.run / "r"

    @property
    def scratch(self) -> Path:
        return self.run / "x"

    @property
    def exits(self) -> Path:
        return self.run / "exits"

    @property
    def lock(self) -> Path:
        """Lock file of the engine that uses these directories."""
        return self.run / "engine.lock"

    def sandbox_files(self, sandbox_id: str) -> Path:
        return self.run / "s" / sandbox_id

    def bundle(self, task_id: str) -> Path:
        return self.bundles / task_id

    def prepare(self) -> None:
        """Create the directories, and restrict the modes of existing ones.

        A runtime with a user namespace reaches its bundle as the namespace's root, an unprivileged
        user of the host. So the directories above bundles and sandbox files can be searched by any
        user but not listed, and each bundle is private. Raises OSError.
        """
        for directory in (self.run, self.bundles, self.run / "s"):
            make_private(directory, PASSABLE)
        for directory in (
            self.data,
            self.sandbox_records,
            self.container_records,
            self.handlers,
            self.namespaces,
            self.runtimes,
            self.scratch,
            self.exits,
        ):
            make_private(directory)
