"""Image verification: decides whether a pod may use an image on the node without pulling it.

Pure. An image that was pulled with a secret may only be used by pods with the same secret or
credential. The node's policy decides which images are verified. Source: KEP-2535;
KubeletConfiguration `imagePullCredentialsVerificationPolicy`; kubelet `images/pullmanager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct

from moorage.api.containers import (
    NEVER_VERIFY_ALLOWLISTED,
    NEVER_VERIFY_PRELOADED,
    POLICIES,
)
from moorage.wire.cri.reference import InvalidReferenceError, parse

_REMEMBERED_SECRETS = 100


class PullSecret(Struct, frozen=True, rename="camel"):
    """A credential and its secret. `credential_hash` is empty when there is none."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    credential_hash: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """Identity of the secret: namespace, name and UID."""
        return self.namespace, self.name, self.uid


class Access(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods that may use an image: all pods of the node, or those with one of the credentials."""

    kubernetes_secrets: tuple[PullSecret, ...] = ()
    node_pods_accessible: bool = False

    @classmethod
    def by(cls, secret: PullSecret | None) -> Access:
        """Return the access that a pull grants; to every pod if it needed no credential."""
        return cls(node_pods_accessible=True) if secret is None else cls((secret,))

    def admits(self, secrets: Iterable[PullSecret]) -> PullSecret | None:
        """Return the pod's secret that matches a recorded one, by credential or as the same object.

        A secret whose credential has changed since still matches as an object.
        """
        hashes = {known.credential_hash for known in self.kubernetes_secrets} - {""}
        places = {known.place for known in self.kubernetes_secrets}
        for secret in secrets:
            if secret.credential_hash in hashes or secret.place in places:
                return secret
        return None

    def joined(self, other: Access) -> Access:
        """Return the union. A secret's latest credential replaces its earlier one."""
        if self.node_pods_accessible or other.node_pods_accessible:
            return Access(node_pods_accessible=True)
        by_place = {pulled_secret.place: pulled_secret for pulled_secret in self.kubernetes_secrets}
        for secret in other.kubernetes_secrets:
            if secret.place in by_place or len(by_place) < _REMEMBERED_SECRETS:
                by_place[secret.place] = secret
        return Access(tuple(by_place[place] for place in sorted(by_place)))


class AllowlistError(ValueError):
    """The policy or an allowlist pattern is invalid; the text says why."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Verification policy of the node.

    `allowlist` holds repositories, or prefixes that end with `/*`.
    """

    policy: str = NEVER_VERIFY_PRELOADED
    allowlist: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise AllowlistError for an invalid policy or pattern."""
        if self.policy not in POLICIES:
            raise AllowlistError(
                f"image pull credentials verification policy {self.policy!r} is none of "
                f"{', '.join(POLICIES)}"
            )
        if self.allowlist and self.policy != NEVER_VERIFY_ALLOWLISTED:
            raise AllowlistError(
                f"an allowlist of preloaded images needs the policy {NEVER_VERIFY_ALLOWLISTED}, "
                f"not {self.policy}"
            )
        for pattern in self.allowlist:
            _check_pattern(pattern)

    def is_needed(self, repository: str, *, is_pulled: bool) -> bool:
        """Return whether a pod needs a matching credential to use an image that is present.

        `is_pulled`: this node's agent pulled the image; otherwise it was preloaded.
        """
        match self.policy:
            case "NeverVerify":
                return False
            case "NeverVerifyPreloadedImages":
                return is_pulled
            case "NeverVerifyAllowlistedImages":
                return not any(_matches(pattern, repository) for pattern in self.allowlist)
            case _:
                return True


def _matches(pattern: str, repository: str) -> bool:
    if pattern.endswith("/*"):
        return repository.startswith(pattern[:-1])
    return repository == pattern


def _check_pattern(pattern: str) -> None:
    if pattern != pattern.strip():
        raise AllowlistError(f"leading/trailing spaces are not allowed: {pattern}")
    bare = pattern[:-1] if pattern.endswith("/*") else pattern
    if not bare:
        raise AllowlistError(f"the supplied pattern is too short: {pattern}")
    if "*" in bare:
        raise AllowlistError(
            f"not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}"
        )
    if bare != pattern:
        if bare == "/":
            raise AllowlistError("at least registry hostname is required")
        return
    try:
        repository = parse(bare).repository
    except InvalidReferenceError as error:
        raise AllowlistError(f"failed to parse as an image name: {error}") from error
    if repository != bare:
        raise AllowlistError(f"neither tag nor digest is accepted in an image reference: {pattern}")
