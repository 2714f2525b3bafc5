"""Who may issue pod certificates, and when. Upstream's registry checks it with the status.

Source: registry `certificates/podcertificaterequest` of Kubernetes 1.36.
"""

from __future__ import annotations

from datetime import timedelta

from moorage.api.certificates import GROUP
from moorage.api.clock import Clock, parse_time
from moorage.api.errors import FieldError, InvalidError
from moorage.apiserver.admission.certificates.signers import IsAllowed, may, signer_of
from moorage.apiserver.admission.chain import UPDATE, Scope
from moorage.apiserver.registry.request import Attributes

_SKEW = timedelta(minutes=5)


class PodCertificateSigning:
    """Refuses issued certificates of another time, and statuses by users without `sign`."""

    name = "PodCertificateSigning"
    scope = Scope.of([f"podcertificaterequests.{GROUP}"], [UPDATE], ["status"])
    mutate = None

    def __init__(self, is_allowed: IsAllowed, clock: Clock) -> None:
        self._is_allowed = is_allowed
        self._clock = clock
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        new, old = attributes.obj or {}, attributes.old or {}
        if new.get("status", {}) == old.get("status", {}):
            return
        start = new["status"].get("notBefore")
        if start is not None and abs(self._clock.now() - parse_time(start)) >= _SKEW:
            detail = "must be set to within 5 minutes of kube-apiserver's current time"
            raise _refused(attributes, FieldError.invalid("status.notBefore", start, detail))
        user, signer = attributes.request.user, signer_of(old)
        if not may(self._is_allowed, user, "sign", signer):
            detail = f'User "{user.name}" is not permitted to "sign" for signer "{signer}"'
            raise _refused(attributes, FieldError.forbidden("spec.signerName", detail))


def _refused(attributes: Attributes, error: FieldError) -> InvalidError:
    kind = attributes.kind
    return InvalidError.of(kind.name, attributes.name, [error], group=kind.group)
