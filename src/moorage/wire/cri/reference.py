"""Image references: registry, repository, tag and digest.

The engine and the node agent must parse names alike. Pure. Source: the distribution project's
reference grammar, with docker.io and `latest` as defaults.
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
    """An invalid image name; the text is the kubelet's."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed image name. `tag` is `latest` when neither tag nor digest was given."""

    registry: str
    path: str
    tag: str
    digest: str

    @property
    def repository(self) -> str:
        """Registry and path, by which credentials are looked up."""
        return f"{self.registry}/{self.path}"

    @property
    def full(self) -> str:
        """The canonical name: by digest if it has one, else by tag.

        A tag beside a digest is dropped, as in containerd.
        """
        if self.digest:
            return f"{self.repository}@{self.digest}"
        return f"{self.repository}:{self.tag}"


def parse(image: str) -> Reference:
    """Parse an image name. Raises InvalidReferenceError."""
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
    """Return the name as given, with `:latest` if it has neither tag nor digest."""
    parsed = parse(image)
    if parsed.digest or image.endswith(f":{parsed.tag}"):
        return image
    return f"{image}:{parsed.tag}"
