"""Installation of an attachment's objects, in an order in which nothing refers to what is missing.

Namespace, definitions, rights and policies come first, then the workloads; webhook configurations
only when the webhook answers, with the authority that signed its certificate: one that fails closed
without a webhook behind it refuses every pod. Each step is an apply, so that an installation that
was interrupted goes on where it stopped.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from copy import deepcopy

import msgspec

from moorage.api.clock import Clock
from moorage.attach.changes import Change, Verb, shown
from moorage.attach.manifests import WEBHOOKS, WORKLOADS
from moorage.attach.manifests.identity import Obj
from moorage.attach.manifests.webhook import SECRET
from moorage.attach.progress import Report, follow
from moorage.attach.served_objects import ServedObjects, name_of
from moorage.attach.values import OWN, Values
from moorage.runtimes.custom_resources import wait_installed

_AUTHORITY_KEY = "ca.crt"


class InstallationOptions(msgspec.Struct, frozen=True):
    """`said` gets a line for each step; `progress` the parts while they start.

    timeout_s: how long the parts may take to start. report_s: how long to wait for the handlers.
    """

    said: Callable[[str], None]
    progress: Report
    timeout_s: float
    report_s: float = 60.0


async def install(
    served: ServedObjects,
    values: Values,
    plan: Sequence[Change],
    clock: Clock,
    options: InstallationOptions,
) -> None:
    """Make the planned changes, and wait until all parts are ready.

    Raises AttachError after the time that the options allow; StatusError, UnreachableError.
    """
    wanted = [change for change in plan if change.verb is not Verb.REMOVE]
    webhooks = [change for change in wanted if change.obj["kind"] in WEBHOOKS]
    workloads = [change for change in wanted if change.obj["kind"] in WORKLOADS]
    for change in wanted:
        if change not in webhooks and change not in workloads:
            await _apply(served, change.obj, options)
    await wait_installed(served.client, clock)
    for change in workloads:
        await _apply(served, change.obj, options)
    await follow(
        served.client,
        values.namespace,
        [change.obj for change in workloads],
        options.progress,
        clock,
        options.timeout_s,
    )
    for obj in await with_authority(served, values, [change.obj for change in webhooks]):
        await _apply(served, obj, options)
    for change in plan:
        if change.verb is Verb.REMOVE and await served.delete(change.obj):
            options.said(f"{name_of(change.obj)} removed")


async def _apply(served: ServedObjects, obj: Obj, options: InstallationOptions) -> None:
    before = await served.get(obj)
    after = await served.apply(obj)
    if before is None:
        options.said(f"{name_of(obj)} created")
    elif shown(before) != shown(after):
        options.said(f"{name_of(obj)} changed")


async def with_authority(
    served: ServedObjects, values: Values, objects: Sequence[Obj]
) -> list[Obj]:
    """Return the objects, webhook configurations among them with the authority of the certificate.

    Unchanged where cert-manager writes it, and before our controllers have issued one.
    """
    if values.certificates != OWN:
        return list(objects)
    secret = await served.get(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": values.namespace},
        }
    )
    bundle = ((secret or {}).get("data") or {}).get(_AUTHORITY_KEY, "")
    return [_with_bundle(obj, bundle) for obj in objects]


def _with_bundle(obj: Obj, bundle: str) -> Obj:
    if not is_base64(bundle) or obj["kind"] not in WEBHOOKS:
        return obj
    made = deepcopy(obj)
    for webhook in made["webhooks"]:
        if "service" in webhook["clientConfig"]:
            webhook["clientConfig"]["caBundle"] = bundle
    return made


def is_base64(text: str) -> bool:
    """Return whether a text is base64 of at least one byte."""
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False
