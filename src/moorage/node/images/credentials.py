"""Which credentials fit an image: the pod's pull secrets, the most specific first.

Pure. Source: core/v1 Secret types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`;
docker's config.json; kubelet `credentialprovider` matching rules.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from moorage.api.configuration import Secret
from moorage.cri import pb
from moorage.node.images.reference import DEFAULT_REGISTRY, Reference

_CONFIG_JSON = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")
_CONFIG = ("kubernetes.io/dockercfg", ".dockercfg")
_HUB_NAMES = frozenset({"index.docker.io", "registry-1.docker.io"})


class SecretFormatError(ValueError):
    """A pull secret that cannot be read; the text names it."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Who to be at the registries (and paths) that match `pattern`."""

    pattern: str
    auth: pb.AuthConfig


def credentials_in(secret: Secret) -> list[Credential]:
    """The credentials of one pull secret. Raises SecretFormatError."""
    entries = _entries(secret)
    return [Credential(_pattern(key), _auth(secret, value)) for key, value in entries.items()]


def matching(credentials: Iterable[Credential], image: Reference) -> list[pb.AuthConfig]:
    """Those to try for an image, in order."""
    fitting = [each for each in credentials if _fits(each.pattern, image)]
    fitting.sort(key=lambda each: each.pattern, reverse=True)
    return [each.auth for each in fitting]


def _entries(secret: Secret) -> dict[str, Any]:
    for type_, key in (_CONFIG_JSON, _CONFIG):
        if secret.type == type_ and key in secret.data:
            try:
                document = msgspec.json.decode(base64.b64decode(secret.data[key]))
            except (msgspec.DecodeError, binascii.Error) as error:
                raise SecretFormatError(
                    f"pull secret {secret.metadata.namespace}/{secret.metadata.name}: {error}"
                ) from error
            entries = document.get("auths") if type_ == _CONFIG_JSON[0] else document
            return entries if isinstance(entries, dict) else {}
    return {}


def _auth(secret: Secret, entry: Any) -> pb.AuthConfig:
    fields = entry if isinstance(entry, dict) else {}
    username, password = fields.get("username", ""), fields.get("password", "")
    if fields.get("auth") and not username:
        try:
            plain = base64.b64decode(fields["auth"]).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise SecretFormatError(
                f"pull secret {secret.metadata.namespace}/{secret.metadata.name}: "
                "auth is not base64"
            ) from error
        username, _, password = plain.partition(":")
    return pb.AuthConfig(
        username=username,
        password=password,
        identity_token=fields.get("identitytoken", ""),
        registry_token=fields.get("registrytoken", ""),
    )


def _pattern(key: str) -> str:
    """`https://host/v1/` and `host` mean the same; docker's own registry has several names."""
    bare = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    host, slash, path = bare.partition("/")
    if path in ("v1", "v2"):
        slash, path = "", ""
    if host in _HUB_NAMES:
        host = DEFAULT_REGISTRY
    return f"{host}{slash}{path}"


def _fits(pattern: str, image: Reference) -> bool:
    host, _, path = pattern.partition("/")
    wanted, found = host.split("."), image.registry.split(".")
    if len(wanted) != len(found):
        return False
    if not all(fnmatchcase(part, glob) for part, glob in zip(found, wanted, strict=True)):
        return False
    return not path or image.path == path or image.path.startswith(f"{path}/")
