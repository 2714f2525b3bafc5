"""Front proxy: how the API server proves itself to extension servers, and names the user.

It has an authority of its own: a certificate of the cluster's authority must never pass as one that
may speak for any user. Extension servers read what to trust from a ConfigMap. Source: API docs
"Configure the Aggregation Layer"; `clusterauthenticationtrust` of Kubernetes 1.37.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.core import CONFIG_MAP
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User

NAME = "front-proxy-client"
"""The name in the certificate, the only one that extension servers accept."""

_NAMESPACE = "kube-system"
_CONFIG_MAP = "extension-apiserver-authentication"
_TOKEN_CHARS = "!#$&'*+-.^_`|~"
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))


class FrontProxy(msgspec.Struct, frozen=True):
    """PEM files: the certificate for extension servers, its authority, and that of all clients."""

    certificate: Path
    key: Path
    authority: Path
    client_authority: Path

    def context(self, bundle: bytes, *, is_insecure: bool) -> ssl.SSLContext:
        """Return how to connect to a server that a CA bundle in PEM vouches for, or nothing.

        Without a bundle the system's authorities do. Raises ValueError for one that cannot be read.
        """
        try:
            context = ssl.create_default_context(cadata=bundle.decode("ascii", "replace") or None)
        except ssl.SSLError as error:
            raise ValueError(f"unable to load root certificates: {error.reason}") from error
        if is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self.certificate, self.key)
        return context

    def trust(self) -> dict[str, str]:
        """Return what extension servers need to know clients and this server by."""
        return {
            "client-ca-file": self.client_authority.read_text(),
            "requestheader-allowed-names": f'["{NAME}"]',
            "requestheader-client-ca-file": self.authority.read_text(),
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }


def user_headers(user: User) -> Iterator[tuple[str, str]]:
    """Yield the headers that name the user of a request to an extension server."""
    yield "X-Remote-User", user.name
    if user.uid:
        yield "X-Remote-Uid", user.uid
    for group in user.groups:
        yield "X-Remote-Group", group
    for key, values in user.extra.items():
        for value in values:
            yield f"X-Remote-Extra-{quote(key, safe=_TOKEN_CHARS)}", value


async def write_trust(objects: Objects, front_proxy: FrontProxy) -> None:
    """Write the ConfigMap by which extension servers authenticate; other keys of it stay."""
    request = Request(user=_USER, is_own=True, user_agent="apiserver/aggregation")
    kind, data = CONFIG_MAP, front_proxy.trust()
    if objects.find(kind, _NAMESPACE, _CONFIG_MAP) is None:
        wanted: Obj = {"metadata": {"name": _CONFIG_MAP, "namespace": _NAMESPACE}, "data": data}
        await objects.create(request, kind, kind.storage, _NAMESPACE, wanted)
        return

    def make_new(old: Obj | None) -> Obj:
        assert old is not None
        return {**old, "data": {**old.get("data", {}), **data}}

    await objects.update(request, kind, kind.storage, _NAMESPACE, _CONFIG_MAP, make_new)
