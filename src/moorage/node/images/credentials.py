"""Registry credentials for an image, from the pod's pull secrets, the most specific first.

Pure. Source: core/v1 Secret types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`;
docker's config.json; kubelet `credentialprovider` matching rules.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

import msgspec

from moorage.api.configuration import Secret
from moorage.node.images.verification import PullSecret
from moorage.wire.cri import pb
from moorage.wire.cri.reference import DEFAULT_REGISTRY, Reference

_CONFIG_JSON = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")
_CONFIG = ("kubernetes.io/dockercfg", ".dockercfg")
T = TypeVar("T")

_HUB_NAMES = frozenset({"index.docker.io", "registry-1.docker.io"})


class SecretFormatError(ValueError):
    """A pull secret is malformed; the text names it."""


class _Entry(msgspec.Struct):
    username: str = ""
    password: str = ""
    auth: str = ""
    identitytoken: str = ""
    registrytoken: str = ""


class _Config(msgspec.Struct):
    auths: dict[str, _Entry] = {}


@dataclass(frozen=True, slots=True)
class Credential:
    """Credential for the registries (and paths) that match `pattern`."""

    pattern: str
    auth: pb.AuthConfig
    source: PullSecret


def credentials_in(secret: Secret) -> list[Credential]:
    """Return the credentials of one pull secret. Raises SecretFormatError."""
    credentials = []
    for key, value in _entries(secret).items():
        auth = _auth(secret, value)
        credentials.append(Credential(_pattern(key), auth, _source(secret, auth)))
    return credentials


def matching(credentials: Iterable[Credential], image: Reference) -> list[Credential]:
    """Return the credentials that match an image, the most specific first."""
    fitting = [credential for credential in credentials if _fits(credential.pattern, image)]
    fitting.sort(key=lambda credential: credential.pattern, reverse=True)
    return fitting


def _source(secret: Secret, auth: pb.AuthConfig) -> PullSecret:
    """Return the part of a credential that is recorded with an image that it pulled."""
    meta = secret.metadata
    parts = (auth.username, auth.password, auth.identity_token, auth.registry_token)
    digest = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
    return PullSecret(meta.uid, meta.namespace, meta.name, digest)


def _entries(secret: Secret) -> Mapping[str, _Entry]:
    if secret.type == _CONFIG_JSON[0] and _CONFIG_JSON[1] in secret.data:
        return _decoded(secret, _CONFIG_JSON[1], _Config).auths
    if secret.type == _CONFIG[0] and _CONFIG[1] in secret.data:
        return _decoded(secret, _CONFIG[1], dict[str, _Entry])
    return {}


def _decoded(secret: Secret, key: str, form: type[T]) -> T:
    try:
        return msgspec.json.decode(base64.b64decode(secret.data[key]), type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, binascii.Error) as error:
        raise _unreadable(secret, str(error)) from error


def _auth(secret: Secret, entry: _Entry) -> pb.AuthConfig:
    username, password = entry.username, entry.password
    if entry.auth and not username:
        try:
            plain = base64.b64decode(entry.auth).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise _unreadable(secret, "auth is not base64") from error
        username, _, password = plain.partition(":")
    return pb.AuthConfig(
        username=username,
        password=password,
        identity_token=entry.identitytoken,
        registry_token=entry.registrytoken,
    )


def _unreadable(secret: Secret, why: str) -> SecretFormatError:
    meta = secret.metadata
    return SecretFormatError(f"pull secret {meta.namespace}/{meta.name}: {why}")


def _pattern(key: str) -> str:
    """Normalise a key: `https://host/v1/` equals `host`, and Docker Hub has several names."""
    bare = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    host, slash, path = bare.partition("/")
    if path in ("v1", "v2"):
        slash, path = "", ""
    if host in _HUB_NAMES:
        host = DEFAULT_REGISTRY
    return f"{host}{slash}{path}"


def _fits(pattern: str, image: Reference) -> bool:
    host, _, path = pattern.partition("/")
    wanted, labels = host.split("."), image.registry.split(".")
    if len(wanted) != len(labels):
        return False
    if not all(fnmatchcase(part, glob) for part, glob in zip(labels, wanted, strict=True)):
        return False
    return not path or image.path == path or image.path.startswith(f"{path}/")
