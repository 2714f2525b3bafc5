"""Where an engine keeps its things: what outlives a reboot in one directory, the rest in another.

    data/  images/ layers/…        the image store's own
           sandboxes/ID.json       records: what was asked for and what became of it
           containers/ID.json
    run/   engine.sock             the CRI
           n/ID/                   pinned namespaces (see `moorage.linux.pinned`)
           s/ID/                   a sandbox's hostname, hosts, resolv.conf and shm
           b/ID/                   bundles: config.json, rootfs, what conmon or a shim keeps
           r/                      the runtimes' own state
           x/                      short-lived files and sockets
           exits/                  conmon's exit files

A socket's path may have 107 bytes, so the names below `run` are short.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.linux.private import PASSABLE, make_private


@dataclass(frozen=True, slots=True)
class EnginePaths:
    """`data` outlives a reboot, `run` does not."""

    data: Path
    run: Path

    @property
    def images(self) -> Path:
        return self.data / "images"

    @property
    def handlers(self) -> Path:
        """Definition files of this engine's own."""
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
        """Held by the engine that runs on these directories."""
        return self.run / "engine.lock"

    def sandbox_files(self, sandbox_id: str) -> Path:
        return self.run / "s" / sandbox_id

    def bundle(self, task_id: str) -> Path:
        return self.bundles / task_id

    def prepare(self) -> None:
        """Make the directories, and close those of an earlier engine to other users.

        A runtime with a user namespace reaches its bundle as the namespace's root user, which is an
        unprivileged user of the host. So the directories above bundles and sandboxes' files can be
        searched by any user but not listed, and each bundle is private. Raises OSError.
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
