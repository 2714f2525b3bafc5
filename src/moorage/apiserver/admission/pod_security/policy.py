"""Policies: the levels and versions that the labels of a namespace set.

Source: `pod-security-admission/api` of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from moorage.api.errors import FieldError

PREFIX = "pod-security.kubernetes.io/"
PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS = (PRIVILEGED, BASELINE, RESTRICTED)
"""From the least to the most strict."""

LATEST = 10**6
"""The version `latest`, beyond that of any check."""

_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,5})")
MODES = ("enforce", "audit", "warn")


class Standard(msgspec.Struct, frozen=True):
    """A level in a minor version of Kubernetes 1."""

    level: str = PRIVILEGED
    version: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.version == LATEST else f'v1.{self.version}'}"

    @property
    def strictness(self) -> int:
        return LEVELS.index(self.level)

    @property
    def permits_all(self) -> bool:
        return self.level == PRIVILEGED


class Policy(msgspec.Struct, frozen=True):
    """What a namespace enforces, audits and warns about. `errors` are those of its labels."""

    enforce: Standard = Standard()
    warn: Standard = Standard()
    errors: tuple[FieldError, ...] = msgspec.field(default=())
    audit: Standard = Standard()

    @property
    def permits_all(self) -> bool:
        standards = (self.enforce, self.warn, self.audit)
        return not self.errors and all(one.permits_all for one in standards)


NO_POLICY = Policy()


def policy_of(labels: Mapping[str, str], defaults: Policy = NO_POLICY) -> Policy:
    """Return the policy of a namespace's labels, `defaults` where they set nothing.

    A level that is none is enforced as `restricted` and otherwise ignored. Without one of its own,
    warnings are about what is enforced.
    """
    if not any(label.startswith(PREFIX) for label in labels):
        return defaults
    errors: list[FieldError] = []
    standards = {mode: _standard(labels, mode, getattr(defaults, mode), errors) for mode in MODES}
    enforce, warn = standards["enforce"], standards["warn"]
    enforced = labels.get(f"{PREFIX}enforce")
    if (
        f"{PREFIX}warn" not in labels
        and enforced in LEVELS
        and enforce.strictness > warn.strictness
    ):
        has_version = f"{PREFIX}warn-version" in labels
        warn = replace(enforce, version=warn.version if has_version else enforce.version)
    return Policy(enforce, warn, tuple(errors), standards["audit"])


def parse_version(text: str) -> int | None:
    """Return the minor version of `v1.x`, LATEST for `latest`, None for what is no version."""
    if text == "latest":
        return LATEST
    match = _VERSION.fullmatch(text)
    return None if match is None else int(match[1])


def _standard(
    labels: Mapping[str, str], mode: str, standard: Standard, errors: list[FieldError]
) -> Standard:
    level, version = labels.get(f"{PREFIX}{mode}"), labels.get(f"{PREFIX}{mode}-version")
    if level in LEVELS:
        standard = replace(standard, level=level)
    elif level is not None:
        errors.append(_invalid(mode, level, f"must be one of {', '.join(LEVELS)}"))
        standard = replace(standard, level=RESTRICTED if mode == "enforce" else PRIVILEGED)
    if version is None:
        return standard
    parsed = parse_version(version)
    if parsed is None:
        errors.append(_invalid(f"{mode}-version", version, 'must be "latest" or "v1.x"'))
    return replace(standard, version=LATEST if parsed is None else parsed)


def _invalid(label: str, value: str, detail: str) -> FieldError:
    return FieldError.invalid(f"metadata.labels[{PREFIX}{label}]", value, detail)
