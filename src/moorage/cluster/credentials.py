"""Credential paths: each identity's certificate and key. Names only, so that import is cheap."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.cluster.layout import Layout


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, directory: Path, name: str) -> Pair:
        """Return the paths of `NAME.crt` and `NAME.key` in a directory."""
        return cls(directory / f"{name}.crt", directory / f"{name}.key")


class Credentials:
    """The paths of a cluster's identities, whose files `identities.prepare` writes."""

    def __init__(self, layout: Layout) -> None:
        self._directory = layout.pki
        self.authority = self._pair("ca")
        self.api_server = self._pair("apiserver")
        self.admin = self._pair("admin")
        self.controllers = self._pair("controllers")
        self.scheduler = self._pair("scheduler")
        self.controllers_server = self._pair("controllers-server")
        self.scheduler_server = self._pair("scheduler-server")
        self.node = self._pair("node")
        self.node_server = self._pair("node-server")
        self.node_client = self._pair("apiserver-node-client")
        """The API server's client certificate for node agents."""

    @property
    def signing_key(self) -> Path:
        """The key that signs service account tokens."""
        return self._directory / "service-accounts.key"

    def _pair(self, name: str) -> Pair:
        return Pair.named(self._directory, name)
