"""Certificate signing requests and trust bundles, their signers and usages.

Source: certificates.k8s.io/v1.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

import msgspec

from moorage.api.meta import Object, ObjectMeta

# PEM blocks, as Go's `encoding/pem` reads them.
#
# Text between blocks and malformed blocks are skipped.

_BEGIN = re.compile(rb"(?:^|(?<=\n))-----BEGIN ([^\n]*?)-----[ \t\r]*\n")
_END = re.compile(rb"(?:^|(?<=\n))-----END ([^\n]*?)-----[ \t\r]*(?:\n|\Z)")
_HEADER = re.compile(rb"[^\n:]*:[^\n]*\n")
_LINE_BYTES = 64


class Block(msgspec.Struct, frozen=True):
    """One block: its type (`CERTIFICATE`), its content, and whether headers stand before that."""

    type: str
    content: bytes
    has_headers: bool = False


def pem_blocks(text: bytes) -> Iterator[Block]:
    """Yield the well-formed blocks of a text in their order. Takes time linear in its length."""
    position = 0
    while begin := _BEGIN.search(text, position):
        end = _END.search(text, begin.end())
        if end is None:
            return
        block = _block(begin.group(1), end.group(1), text[begin.end() : end.start()])
        if block is not None:
            yield block
        position = end.end()


def first_block(text: bytes) -> Block | None:
    """Return the first well-formed block, None without any."""
    return next(pem_blocks(text), None)


def encode_block(block_type: str, content: bytes) -> bytes:
    """Return a block without headers as text."""
    encoded = base64.b64encode(content)
    lines = [encoded[at : at + _LINE_BYTES] for at in range(0, len(encoded), _LINE_BYTES)]
    mark = block_type.encode()
    return b"\n".join(
        [b"-----BEGIN " + mark + b"-----", *lines, b"-----END " + mark + b"-----", b""]
    )


def _block(begin_type: bytes, end_type: bytes, body: bytes) -> Block | None:
    if begin_type != end_type:
        return None
    at = 0
    while header := _HEADER.match(body, at):
        at = header.end()
    try:
        content = base64.b64decode(b"".join(body[at:].split()), validate=True)
    except binascii.Error:
        return None
    return Block(begin_type.decode(errors="replace"), content, has_headers=at > 0)


GROUP = "certificates.k8s.io"
API_SERVER_CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN = "kubernetes.io/legacy-unknown"
API_SERVER_SERVING = "kubernetes.io/kube-apiserver-serving"

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
TERMINAL_CONDITIONS = (APPROVED, DENIED, FAILED)
"""Conditions of a CertificateSigningRequest that, once there, stay and are True."""

SHORTEST_S = 600
"""Shortest duration that a CertificateSigningRequest may ask for."""


class RequestCondition(Object, frozen=True):
    """`CertificateSigningRequestCondition`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class RequestSpec(Object, frozen=True):
    """`request` is PEM text in base64."""

    request: str = ""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: tuple[str, ...] = ()
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class RequestStatus(Object, frozen=True):
    """`certificate` is PEM text in base64."""

    conditions: tuple[RequestCondition, ...] = ()
    certificate: str = ""


class CertificateSigningRequest(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RequestSpec = RequestSpec()
    status: RequestStatus = RequestStatus()

    @property
    def pem(self) -> bytes:
        """The request as PEM text. Raises ValueError if it is not base64."""
        return base64.b64decode(self.spec.request, validate=True)

    def has(self, condition_type: str) -> bool:
        """Return whether a condition of that type exists."""
        return any(condition.type == condition_type for condition in self.status.conditions)


class ClusterTrustBundleSpec(Object, frozen=True):
    """`trust_bundle` is PEM text."""

    signer_name: str = ""
    trust_bundle: str = ""


class ClusterTrustBundle(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterTrustBundleSpec = ClusterTrustBundleSpec()
