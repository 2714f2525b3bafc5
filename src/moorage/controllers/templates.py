"""Pod templates: when two are the same, and the hash that names one.

Equality decides whether a ReplicaSet or a ControllerRevision is reused (which is what a rollback
is); the hash only makes names, and a collision is resolved by a counter. Source: API docs
"Pod-template-hash label".
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from moorage.api.meta import Raw

# Counts that may be given as percentages. Source: apimachinery `intstr`.


def scaled(value: int | str | None, total: int, *, rounds_up: bool) -> int:
    """Resolve a count, or a percentage of `total`. Raises ValueError for any other text."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise ValueError(f"invalid value for IntOrString: {value!r} is not a percentage")
    percent = int(value.removesuffix("%"))
    return -(-percent * total // 100) if rounds_up else percent * total // 100


HASH_LABEL = "pod-template-hash"

# No vowels and no digits that look like them, so that no word is ever formed.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LENGTH = 10

_encoder = msgspec.json.Encoder(order="deterministic")


def template_hash(template: Raw, collisions: int) -> str:
    """Return the template's hash, ten letters and digits; each collision counted changes it."""
    canonical = _encoder.encode(_canonical(template))
    digest = hashlib.sha256(b"%d:%s" % (collisions, canonical)).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)


def is_same_template(one: Raw, other: Raw) -> bool:
    """Return whether two templates are equal, ignoring their hash labels."""
    return bool(_canonical(one) == _canonical(other))


def with_hash(template: Raw, hash_: str) -> Raw:
    """Return the template with the label that distinguishes its pods from other revisions'."""
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH_LABEL: hash_}
    return {**template, "metadata": {**metadata, "labels": labels}}


def selector_with_hash(selector: Raw | None, hash_: str) -> Raw:
    selector = selector or {}
    labels = {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_}
    return {**selector, "matchLabels": labels}


def _canonical(template: Raw) -> Raw:
    metadata = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != HASH_LABEL}
    canonical: Raw = _without_empty({**template, "metadata": {**metadata, "labels": labels}})
    return canonical


def _without_empty(value: Any) -> Any:
    """Remove null and empty values: absent, null and emptied labels compare as equal."""
    if not isinstance(value, dict):
        return [_without_empty(item) for item in value] if isinstance(value, list) else value
    return {
        key: _without_empty(item)
        for key, item in value.items()
        if item is not None and not (key in ("labels", "metadata") and item == {})
    }
