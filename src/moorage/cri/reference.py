"""What an image's name says: registry, repository, tag and digest.

The engine and the agent must read names alike. Pure. Source: the distribution project's reference
grammar, with docker.io and `latest` where a name leaves them out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_REGISTRY = "docker.io"
DEFAULT_TAG = "latest"

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"  # noqa: E501
_REFERENCE = re.compile(
    rf"(?:(?P<host>{_HOST})/)?(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
# Docker's own registry has an older name.
_ALIASES = {"index.docker.io": DEFAULT_REGISTRY}
_ID = re.compile(r"[0-9a-f]{64}")


class InvalidReferenceError(ValueError):
    """A name that is none; the text is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed image name. `tag` is `latest` when neither tag nor digest was written."""

    registry: str
    path: str
    tag: str
    digest: str

    @property
    def repository(self) -> str:
        """Registry and path, what credentials are looked up by."""
        return f"{self.registry}/{self.path}"

    @property
    def full(self) -> str:
        """The one spelling of the name: by digest when it has one, else by tag.

        A tag beside a digest says nothing more and is dropped, as containerd does.
        """
        if self.digest:
            return f"{self.repository}@{self.digest}"
        return f"{self.repository}:{self.tag}"


def parse(image: str) -> Reference:
    """The parts of an image name. Raises InvalidReferenceError."""
    match = _REFERENCE.fullmatch(image)
    if match is None or _ID.fullmatch(image) or len(match["path"]) > 255:
        why = "invalid reference format"
        if image != image.lower() and _REFERENCE.fullmatch(image.lower()):
            why = "invalid reference format: repository name must be lowercase"
        raise InvalidReferenceError(f'couldn\'t parse image name "{image}": {why}')
    host, path = match["host"] or "", match["path"]
    # The first part is a host only when it looks like one: `library/busybox` is a path.
    if host and not ("." in host or ":" in host or host == "localhost" or host != host.lower()):
        host, path = "", f"{host}/{path}"
    registry = _ALIASES.get(host, host) or DEFAULT_REGISTRY
    if registry == DEFAULT_REGISTRY and "/" not in path:
        path = f"library/{path}"
    digest = match["digest"] or ""
    tag = match["tag"] or ("" if digest else DEFAULT_TAG)
    return Reference(registry, path, tag, digest)


def with_default_tag(image: str) -> str:
    """The name as written, with `:latest` where it has neither tag nor digest."""
    parsed = parse(image)
    if parsed.digest or image.endswith(f":{parsed.tag}"):
        return image
    return f"{image}:{parsed.tag}"
