"""Registry credentials: from the CRI's `AuthConfig` to a file for skopeo.

Secrets are in the file, never on the command line, which any user may read. Source: CRI AuthConfig;
containers-auth.json(5).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from moorage.engine.errors import InvalidError, UnsupportedCallError
from moorage.wire.cri import pb
from moorage.wire.cri.reference import DEFAULT_REGISTRY, Reference

_HUB_HOSTS = frozenset({"index.docker.io", "registry-1.docker.io", DEFAULT_REGISTRY})


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and password, or an identity token; its repr shows neither."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @classmethod
    def of(cls, auth: pb.AuthConfig, reference: Reference) -> Credentials | None:
        """Return the credentials in an `AuthConfig`; None when it is empty, or for another server.

        Raises InvalidError for a malformed `auth`, UnsupportedCallError for a registry token.
        """
        if auth.server_address and _host(auth.server_address) != _host(reference.registry):
            return None
        if auth.username:
            return cls(auth.username, auth.password)
        if auth.auth:
            return cls(*_decoded(auth.auth))
        if auth.identity_token:
            return cls(identity_token=auth.identity_token)
        if auth.registry_token:
            # skopeo takes a registry token on its command line only, where any user could read it.
            raise UnsupportedCallError(
                f"registry tokens are not supported for {reference.full}: give a user name and "
                "password, or an identity token"
            )
        return None


@contextmanager
def credentials_file(
    directory: Path, name: str, reference: Reference, credentials: Credentials | None
) -> Iterator[Path | None]:
    """Write a credentials file for the block; yields None without credentials. Raises OSError."""
    if credentials is None:
        yield None
        return
    plain = f"{credentials.username}:{credentials.password}".encode()
    entry = {"auth": base64.b64encode(plain).decode()}
    if credentials.identity_token:
        entry["identitytoken"] = credentials.identity_token
    path = directory / f"{name}.auth.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode({"auths": {reference.registry: entry}}))
        yield path
    finally:
        path.unlink(missing_ok=True)


def _decoded(auth: str) -> tuple[str, str]:
    try:
        plain = base64.b64decode(auth).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidError("the credentials' auth is not base64 of user:password") from error
    username, colon, password = plain.partition(":")
    if not colon:
        raise InvalidError("the credentials' auth is not base64 of user:password")
    # Some tools pad with zero bytes.
    return username, password.strip("\0")


def _host(server: str) -> str:
    """Return the host and port in `https://host/v1/`, `//host` or `host`."""
    host = urlsplit(server if "//" in server else f"//{server}").netloc
    return DEFAULT_REGISTRY if host in _HUB_HOSTS else host
