"""Service account tokens for pods: requested, cached, and renewed before they expire.

A token is bound to the pod, so it expires with it. It is renewed after four fifths of its lifetime,
or after a day, whichever is sooner. Source: KEP-1205 (TokenRequest), KEP-542 (projected tokens),
kubelet `token_manager.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from moorage.api.clock import Clock, parse_time
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.api.meta import Object, ObjectMeta
from moorage.api.pods import Pod
from moorage.node.objects import retry_forbidden
from moorage.node.volumes.payload import TokenWanted
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, UnreachableError

log = Log(__name__)

_RENEW_AFTER = 0.8
_LONGEST_S = 24 * 3600.0
_RETRY_S = 30.0


class _Spec(Object, frozen=True):
    expiration_seconds: int | None = None


class _Status(Object, frozen=True):
    token: str = ""
    expiration_timestamp: str = ""


class TokenRequest(Object, frozen=True):
    """Response to a token request. Source: authentication.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "TokenRequest", TokenRequest)

Key = tuple[str, TokenWanted]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    renew_s: float
    end_s: float


class PodTokens:
    """Tokens of this node's pods, by pod and audience."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: dict[Key, _Token] = {}

    async def get(self, pod: Pod, wanted: TokenWanted) -> str:
        """Return a token with at least a fifth of its lifetime left.

        Raises StatusError, UnreachableError.

        While renewal fails, returns the old token as long as it is valid.
        """
        key = (pod.metadata.uid, wanted)
        token = self._tokens.get(key)
        now_s = self._clock.now().timestamp()
        if token is not None and now_s < token.renew_s:
            return token.text
        try:
            token = await self._request(pod, wanted, now_s)
        except (StatusError, UnreachableError) as error:
            if token is None or now_s >= token.end_s:
                raise
            meta = pod.metadata
            log.warning("token not renewed", pod=meta.name, uid=meta.uid, error=error)
            token = replace(token, renew_s=now_s + _RETRY_S)
        self._tokens[key] = token
        return token.text

    def renewal_s(self, pod: Pod) -> float | None:
        """Return when the pod's next token is due, in seconds since the epoch; None without one."""
        uid = pod.metadata.uid
        return min(
            (token.renew_s for key, token in self._tokens.items() if key[0] == uid), default=None
        )

    def forget(self, uid: str) -> None:
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]

    async def _request(self, pod: Pod, wanted: TokenWanted, now_s: float) -> _Token:
        body = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {
                "audiences": [wanted.audience] if wanted.audience else [],
                "expirationSeconds": wanted.life_s,
                "boundObjectRef": {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                },
            },
        }
        answer = await retry_forbidden(
            self._clock,
            lambda: self._client.create(
                _SERVICE_ACCOUNTS,
                body,
                pod.metadata.namespace,
                name=pod.spec.service_account_name or "default",
                subresource="token",
            ),
        )
        end_s = parse_time(answer.status.expiration_timestamp).timestamp()
        life_s = answer.spec.expiration_seconds or wanted.life_s
        renew_s = min(end_s - life_s * (1 - _RENEW_AFTER), now_s + _LONGEST_S)
        return _Token(answer.status.token, renew_s, end_s)
