"""Credential paths: each identity's certificate and key. Names only, so that import is cheap."""

from __future__ import annotations

from pathlib import Path

import msgspec

from moorage.cluster.layout import Layout


class Pair(msgspec.Struct, frozen=True):
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
        self.authority = self.named("ca")
        self.api_server = self.named("apiserver")
        self.admin = self.named("admin")
        self.controllers = self.named("controllers")
        self.scheduler = self.named("scheduler")
        self.controllers_server = self.named("controllers-server")
        self.scheduler_server = self.named("scheduler-server")
        self.network = self.named("network")
        """The network agent's client certificate."""
        self.node = self.named("node")
        self.node_server = self.named("node-server")
        self.node_client = self.named("apiserver-node-client")
        """The API server's client certificate for node agents."""
        self.front_proxy_authority = Pair.named(layout.front_proxy, "ca")
        self.front_proxy = Pair.named(layout.front_proxy, "client")
        """The API server's client certificate for extension servers, of an authority of its own."""

    @property
    def signing_key(self) -> Path:
        """The key that signs service account tokens."""
        return self._directory / "service-accounts.key"

    def named(self, name: str) -> Pair:
        """Return the pair of an identity: `admin`, or a part that is a client of the API."""
        return Pair.named(self._directory, name)
