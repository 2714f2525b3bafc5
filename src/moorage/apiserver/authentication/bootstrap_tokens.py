"""Authentication by bootstrap tokens. Source: apiserver `token/bootstrap` of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.bootstrap_tokens import NAME_PREFIX, USER_PREFIX, groups_of, token_id
from moorage.api.clock import Clock
from moorage.api.configuration import Secret
from moorage.apiserver.registry.request import AUTHENTICATED, User


class BootstrapTokens:
    """Resolves tokens. `find_secret(name)` returns a Secret of `kube-system`, or None."""

    def __init__(self, find_secret: Callable[[str], Secret | None], clock: Clock) -> None:
        self._find_secret = find_secret
        self._clock = clock

    def user_of(self, token: str) -> User | None:
        """Return the user of a token, None if it is no valid bootstrap token."""
        own_id = token_id(token)
        secret = None if own_id is None else self._find_secret(NAME_PREFIX + own_id)
        groups = None if secret is None else groups_of(secret, token, self._clock.now())
        if groups is None:
            return None
        return User(name=f"{USER_PREFIX}{own_id}", groups=(*groups, AUTHENTICATED))
