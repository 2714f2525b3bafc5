"""The controller of the webhook's certificate: its Secret, and `caBundle` of the configurations.

A Secret that is deleted, damaged or expired is written again, and a `caBundle` that was edited is
put right. API servers trust a new authority before a replica serves its certificate: ISSUE writes
the configurations first, PREPARE the Secret, from which the next pair is read back at PROMOTE.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.configuration import Secret
from moorage.api.errors import NotFoundError
from moorage.api.logs import Log
from moorage.api.meta import Object, ObjectMeta, Raw
from moorage.api.runtime_group import GROUP
from moorage.controllers.loop import Loop
from moorage.controllers.webhookcertificates.issuing import (
    Certificates,
    Step,
    after_step,
    authorities_of,
    issue_pair,
    next_step,
    read_pair,
)
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import SECRETS, Resource
from moorage.wire.client.rest import Client, PatchType

CHANGED_ANNOTATION = f"{GROUP}/certificate-changed"
"""Annotation of the Secret: when the last step of a rotation was taken."""
_KEY = "certificate"
_TLS = "kubernetes.io/tls"
_CERTIFICATE, _PRIVATE_KEY, _BUNDLE = "tls.crt", "tls.key", "ca.crt"
_NEXT_CERTIFICATE, _NEXT_KEY = "next.crt", "next.key"

log = Log(__name__)


class WebhookService(msgspec.Struct, frozen=True):
    """The webhook's Service; `secret` gets its certificate, and `configurations` trust it."""

    name: str
    namespace: str
    secret: str = "moorage-webhook-tls"
    configurations: str = "moorage"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names by which the Service is reached."""
        full = f"{self.name}.{self.namespace}.svc"
        return full, f"{full}.cluster.local", f"{self.name}.{self.namespace}", self.name


class WebhookConfiguration(Object, frozen=True):
    """A webhook configuration, validating or mutating."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Raw, ...] = ()


def _configurations(kind: str) -> Resource[WebhookConfiguration]:
    return Resource(
        "admissionregistration.k8s.io", "v1", f"{kind.lower()}s", kind, WebhookConfiguration,
        is_namespaced=False,
    )  # fmt: skip


MUTATING = _configurations("MutatingWebhookConfiguration")
VALIDATING = _configurations("ValidatingWebhookConfiguration")


class WebhookCertificateController:
    """Watches one Secret and two configurations by their names."""

    def __init__(self, client: Client, service: WebhookService, clock: Clock) -> None:
        self._client = client
        self._service = service
        self._clock = clock
        self._secrets = Informer(
            client,
            SECRETS,
            namespace=service.namespace,
            field_selector=f"metadata.name={service.secret}",
            clock=clock,
        )
        self._configurations = [
            Informer(
                client,
                resource,
                field_selector=f"metadata.name={service.configurations}",
                clock=clock,
            )
            for resource in (MUTATING, VALIDATING)
        ]
        informers: tuple[Informer[Any], ...] = (self._secrets, *self._configurations)
        self.run = Loop(
            "webhook certificate",
            self._reconcile,
            [(informer, lambda _before, _after: (_KEY,)) for informer in informers],
            clock,
            owned=informers,
            first=[_KEY],
        ).run

    async def _reconcile(self, key: str) -> float:
        del key
        now, hosts = self._clock.now(), self._service.hosts
        secret = await self._read_secret()
        present = self._read(secret)
        step, pause = next_step(present, frozenset(hosts), now)
        if step is Step.PROMOTE and not self._is_trusted(present.bundle):
            # Only what API servers trust may be served.
            await self._write_bundle(present.bundle)
            return 1.0
        issued = issue_pair(hosts, now) if step in (Step.ISSUE, Step.PREPARE) else None
        after = after_step(present, step, issued, now)
        if step is Step.ISSUE:
            await self._write_bundle(after.bundle)
        if after != present:
            await self._write_secret(secret, after)
            log.info("webhook certificate", step=step.value, secret=self._service.secret)
        if step is not Step.ISSUE:
            await self._write_bundle(after.bundle)
        # Each step that was taken leads to another.
        return pause.total_seconds() if step is Step.KEEP else 1.0

    async def _read_secret(self) -> Secret | None:
        """Read the Secret itself: on a copy that is behind, a certificate would be issued again."""
        try:
            return await self._client.get(SECRETS, self._service.secret, self._service.namespace)
        except NotFoundError:
            return None

    def _read(self, secret: Secret | None) -> Certificates:
        """Return the Secret's content.

        Of one that is lost, or was put back from a copy, what API servers trust is kept: replicas
        serve it until they see the Secret in their files.
        """
        now = self._clock.now()
        data = {} if secret is None else _decoded(secret.data)
        bundle = data.get(_BUNDLE, "")
        current = read_pair(data.get(_CERTIFICATE, ""), data.get(_PRIVATE_KEY, ""), bundle)
        following = read_pair(data.get(_NEXT_CERTIFICATE, ""), data.get(_NEXT_KEY, ""), bundle)
        trusted = authorities_of("".join(self._trusted()), now)
        is_replaced = bool(trusted) and (current is None or current.authority not in trusted)
        if is_replaced:
            bundle += "".join(trusted)
        used = {pair.authority for pair in (current, following) if pair is not None}
        old = tuple(one for one in authorities_of(bundle, now) if one not in used)
        changed = ""
        if secret is not None and not is_replaced:
            changed = secret.metadata.annotations.get(CHANGED_ANNOTATION, "")
        try:
            since = parse_time(changed)
        except ValueError:
            since = None
        return Certificates(current, following, old, since)

    def _trusted(self) -> list[str]:
        return [
            _text(webhook.get("clientConfig", {}).get("caBundle", ""))
            for informer in self._configurations
            for configuration in informer
            for webhook in configuration.webhooks
        ]

    def _is_trusted(self, bundle: str) -> bool:
        return all(trusted == bundle for trusted in self._trusted())

    async def _write_secret(self, secret: Secret | None, certificates: Certificates) -> None:
        current, following = certificates.current, certificates.next
        assert current is not None
        assert certificates.changed is not None
        data = {
            _CERTIFICATE: _encoded(current.certificate),
            _PRIVATE_KEY: _encoded(current.key),
            _BUNDLE: _encoded(certificates.bundle),
            _NEXT_CERTIFICATE: _encoded(following.certificate) if following else None,
            _NEXT_KEY: _encoded(following.key) if following else None,
        }
        name, namespace = self._service.secret, self._service.namespace
        annotations = {CHANGED_ANNOTATION: format_time(certificates.changed)}
        if secret is not None and secret.type == _TLS:
            metadata = {"resourceVersion": secret.metadata.resource_version,
                        "annotations": annotations}  # fmt: skip
            patch = {"metadata": metadata, "data": data}
            await self._client.patch(SECRETS, name, patch, namespace)
            return
        if secret is not None:
            # The type of a Secret cannot be changed.
            await self._client.delete(SECRETS, name, namespace, uid=secret.metadata.uid)
        labels = {
            "app.kubernetes.io/name": "moorage",
            "app.kubernetes.io/part-of": "moorage",
            "app.kubernetes.io/component": "webhook",
        }
        body = {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "type": _TLS,
            "data": {key: value for key, value in data.items() if value is not None},
        }
        await self._client.create(SECRETS, body, namespace)

    async def _write_bundle(self, bundle: str) -> None:
        """Have API servers trust the authorities of a bundle, and no others."""
        encoded = _encoded(bundle)
        for informer in self._configurations:
            for configuration in informer:
                changed = [
                    {"name": webhook["name"], "clientConfig": {"caBundle": encoded}}
                    for webhook in configuration.webhooks
                    if webhook.get("clientConfig", {}).get("caBundle") != encoded
                ]
                if not changed:
                    continue
                meta = configuration.metadata
                patch: dict[str, Any] = {"metadata": {"uid": meta.uid}, "webhooks": changed}
                try:
                    await self._client.patch(
                        informer.resource, meta.name, patch, kind=PatchType.STRATEGIC
                    )
                except NotFoundError:
                    continue
                log.info("webhook configuration trusts another bundle", name=meta.name)


def _decoded(data: Mapping[str, str]) -> dict[str, str]:
    return {key: _text(value) for key, value in data.items()}


def _text(encoded: str) -> str:
    """Return base64 as text; empty for anything else."""
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
