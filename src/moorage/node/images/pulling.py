"""Image pulling for containers.

Looks the image up on the node as the pull policy requires, pulls it with the pod's credentials, a
limited number at a time, and backs off after failures. Every outcome is an event and, where it
blocks a container, a reason in its status. Source: core/v1 `imagePullPolicy`; kubelet `images`
package, with its messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.api.clock import Clock
from moorage.api.configuration import Secret
from moorage.api.durations import format_duration
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.node.config.security import ImageUser
from moorage.node.images.credentials import Credential, SecretFormatError, credentials_in, matching
from moorage.node.images.records import PullRecords
from moorage.node.images.verification import Access, PullSecret, Verification
from moorage.node.pod_facts.containers import Member
from moorage.node.pod_facts.errors import SyncError
from moorage.node.pod_facts.events import PodEvents
from moorage.node.pod_facts.labels import RUNTIME_HANDLER
from moorage.node.runtime.engine import Engine
from moorage.wire.client.recorder import NORMAL, WARNING
from moorage.wire.cri import CriError, pb
from moorage.wire.cri.reference import InvalidReferenceError, parse, with_default_tag

log = Log(__name__)

ALWAYS = "Always"
NEVER = "Never"

_FIRST_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 300.0
# Records have whole seconds, and a record written during the listing must be kept.
_PRUNE_MARGIN_S = 60.0
_FORGET_S = 2 * _LONGEST_PAUSE_S

_KNOWN_CAUSES = {
    "RegistryUnavailable": "the registry is unavailable",
    "SignatureValidationFailed": "the signature validation failed",
}


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image on the node: the reference for the engine, and the image's user."""

    reference: str
    user: ImageUser


@dataclass(slots=True)
class _Failure:
    pause_s: float
    failed_s: float
    sentence: str


class ImagePuller:
    """Provides images for the containers of this node's pods."""

    def __init__(
        self,
        engine: Engine,
        events: PodEvents,
        clock: Clock,
        *,
        parallel_pulls: int,
        records: PullRecords,
        verification: Verification,
    ) -> None:
        self._records = records
        self._verification = verification
        self._engine = engine
        self._events = events
        self._clock = clock
        self._slots = asyncio.Semaphore(parallel_pulls)
        self._failures: dict[tuple[str, str], _Failure] = {}

    async def ensure(
        self,
        pod: Pod,
        wanted: Member,
        secrets: Sequence[Secret],
        sandbox: pb.PodSandboxConfig,
    ) -> FoundImage:
        """Return the image of a container, pulling it if needed. Raises SyncError."""
        container = wanted.container
        policy = container.image_pull_policy or _default_policy(container.image)
        return await self.ensure_image(pod, wanted, container.image, policy, secrets, sandbox)

    async def ensure_image(
        self,
        pod: Pod,
        about: Member,
        image: str,
        policy: str,
        secrets: Sequence[Secret],
        sandbox: pb.PodSandboxConfig,
    ) -> FoundImage:
        """Return an image for a container or an image volume, pulling it if needed.

        Raises SyncError.
        """
        try:
            name = with_default_tag(image)
        except InvalidReferenceError as error:
            message = f'Failed to apply default image tag "{image}": {error}'
            self._events.container(pod, about, WARNING, "InspectFailed", message)
            raise SyncError("InvalidImageName", message) from error
        present: str | None = None
        if policy != ALWAYS:
            local_image = await self._present(pod, about, name, _handler(sandbox))
            present = local_image.id if local_image is not None else ""
            if local_image is not None and await self._is_accessible(
                pod, name, local_image.id, secrets
            ):
                self._events.container(
                    pod, about, NORMAL, "Pulled",
                    f'Container image "{image}" already present on machine and can be accessed '
                    "by the pod",
                )  # fmt: skip
                return _found(local_image, local_image.id)
            if policy == NEVER:
                message = f'Container image "{image}" is not present with pull policy of Never'
                self._events.container(pod, about, WARNING, "ErrImageNeverPull", message)
                raise SyncError("ErrImageNeverPull", message)
        return await self._pull(pod, about, image, name, present, secrets, sandbox)

    async def tidy(self, images: Collection[str], before: datetime) -> None:
        """Settle pulls without a known result, and drop the records of removed images.

        `images` are the IDs of the images on the node at `before`. Raises CriError, OSError.
        """
        await self.recover()
        await self._records.prune(images, before.timestamp() - _PRUNE_MARGIN_S)

    async def recover(self) -> None:
        """Settle pulls without a known result, such as those of an earlier agent process.

        A pod may use an image of such a pull only with a credential. Raises CriError, OSError.
        """
        for name, present in self._records.unsettled():
            image = await self._engine.image(name)
            if image is not None and image.id != present:
                await self._records.settle(name, image.id, parse(name).repository)

    def forget(self, uid: str) -> None:
        """Drop the failures of a pod that is gone."""
        for key in [key for key in self._failures if key[0] == uid]:
            del self._failures[key]

    async def _present(self, pod: Pod, about: Member, name: str, handler: str) -> pb.Image | None:
        try:
            return await self._engine.image(name, handler)
        except CriError as error:
            message = f'Failed to inspect image "{name}": {error}'
            self._events.container(pod, about, WARNING, "InspectFailed", message)
            raise SyncError("ImageInspectError", message) from error

    async def _is_accessible(
        self, pod: Pod, name: str, image_ref: str, secrets: Sequence[Secret]
    ) -> bool:
        """Return whether the node's policy lets the pod use the image without a pull."""
        repository = parse(name).repository
        is_pulled = self._records.is_pulled(name, image_ref)
        if not self._verification.is_needed(repository, is_pulled=is_pulled):
            return True
        access = self._records.access(image_ref, repository)
        if access.node_pods_accessible:
            return True
        own = access.admits(
            credential.source for credential in self._credentials(pod, name, secrets)
        )
        if own is None:
            return False
        try:
            await self._records.note(image_ref, repository, Access.by(own))
        except OSError as error:
            log.warning("record of a pull cannot be written", image=name, error=error)
        return True

    async def _pull(
        self,
        pod: Pod,
        about: Member,
        image: str,
        name: str,
        present: str | None,
        secrets: Sequence[Secret],
        sandbox: pb.PodSandboxConfig,
    ) -> FoundImage:
        key = (pod.metadata.uid, image)
        self._check_backoff(pod, about, image, key)
        self._events.container(pod, about, NORMAL, "Pulling", f'Pulling image "{image}"')
        asked_s = self._clock.monotonic()
        try:
            async with self._slots:
                begun_s = self._clock.monotonic()
                reference, pulled = await self._recorded_pull(pod, name, present, secrets, sandbox)
        except CriError as error:
            self._events.container(
                pod, about, WARNING, "Failed", f'Failed to pull image "{image}": {error}'
            )
            raise self._failed(key, image, error) from error
        self._failures.pop(key, None)
        now_s = self._clock.monotonic()
        size = pulled.size if pulled is not None else 0
        self._events.container(
            pod, about, NORMAL, "Pulled",
            f'Successfully pulled image "{image}" in {_spoken(now_s - begun_s)} '
            f"({_spoken(now_s - asked_s)} including waiting). Image size: {size} bytes.",
        )  # fmt: skip
        return _found(pulled, reference)

    async def _recorded_pull(
        self,
        pod: Pod,
        name: str,
        present: str | None,
        secrets: Sequence[Secret],
        sandbox: pb.PodSandboxConfig,
    ) -> tuple[str, pb.Image | None]:
        """Pull an image, and record the pull and its credential. Raises CriError, SyncError.

        `present` is the ID of the name on the node, None if it was not looked up.
        """
        if present is None:
            present = await self._image_ref(name) or ""
        try:
            await self._records.begin(name, present)
        except OSError as error:
            message = f"failed to record image pull intent: {error}"
            raise SyncError("ErrImagePull", message) from error
        is_settled = False
        try:
            try:
                reference, source = await self._pull_with_any(pod, name, secrets, sandbox)
                image = await self._engine.image(name, _handler(sandbox))
            except CriError:
                is_settled = True
                await self._records.failed(name, await self._image_ref(name))
                raise
            is_settled = True
            image_ref = image.id if image is not None else reference
            await self._records.succeeded(
                name, image_ref, parse(name).repository, Access.by(source)
            )
        finally:
            if not is_settled:
                # The pod was removed during the pull, which the engine may continue.
                self._records.abandoned(name)
        return reference, image

    async def _image_ref(self, name: str) -> str | None:
        """Return the ID of a name on the node, "" for none; None if the engine fails."""
        try:
            image = await self._engine.image(name)
        except CriError:
            return None
        return image.id if image is not None else ""

    def _check_backoff(self, pod: Pod, about: Member, image: str, key: tuple[str, str]) -> None:
        failure = self._failures.get(key)
        if failure is None:
            return
        retry_s = failure.failed_s + failure.pause_s
        if self._clock.monotonic() >= retry_s:
            return
        message = f'Back-off pulling image "{image}"'
        self._events.container(pod, about, NORMAL, "BackOff", message)
        raise SyncError("ImagePullBackOff", f"{message}: {failure.sentence}", retry_s=retry_s)

    def _failed(self, key: tuple[str, str], image: str, error: CriError) -> SyncError:
        reason, message = "ErrImagePull", str(error)
        for known, cause in _KNOWN_CAUSES.items():
            if error.sentence.startswith(known):
                rest = error.sentence.removeprefix(known)
                reason = known
                message = f"image pull failed for {image} because {cause}{rest}"
        now_s = self._clock.monotonic()
        before = self._failures.get(key)
        pause_s = _FIRST_PAUSE_S
        if before is not None and now_s - before.failed_s <= _FORGET_S:
            pause_s = min(before.pause_s * 2, _LONGEST_PAUSE_S)
        self._failures[key] = _Failure(pause_s, now_s, f"{reason}: {message}")
        return SyncError(reason, message)

    async def _pull_with_any(
        self, pod: Pod, name: str, secrets: Sequence[Secret], sandbox: pb.PodSandboxConfig
    ) -> tuple[str, PullSecret | None]:
        """Pull with each matching credential until one is accepted; without one if none matches.

        Returns the engine's reference and the accepted credential, None without one.
        """
        spec = pb.ImageSpec(
            image=name,
            user_specified_image=name,
            annotations=pod.metadata.annotations,
            # The images of some handlers are for a platform of their own.
            runtime_handler=_handler(sandbox),
        )
        candidates: list[Credential | None] = [*self._credentials(pod, name, secrets)]
        failure: CriError | None = None
        for credential in candidates or [None]:
            auth, source = (credential.auth, credential.source) if credential else (None, None)
            try:
                return await self._engine.pull_image(spec, auth, sandbox), source
            except CriError as error:
                failure = error
        assert failure is not None
        raise failure

    @staticmethod
    def _credentials(pod: Pod, name: str, secrets: Sequence[Secret]) -> list[Credential]:
        credentials = []
        for secret in secrets:
            try:
                credentials += credentials_in(secret)
            except SecretFormatError as error:
                log.warning("pull secret ignored", pod=pod.metadata.name, error=error)
        return matching(credentials, parse(name))


def _default_policy(image: str) -> str:
    """Return the API server's default policy: Always for the tag `latest`, else IfNotPresent."""
    try:
        return ALWAYS if parse(image).tag == "latest" else "IfNotPresent"
    except InvalidReferenceError:
        return "IfNotPresent"


def _found(image: pb.Image | None, reference: str) -> FoundImage:
    if image is None:
        return FoundImage(reference, ImageUser(uid=0))
    if image.HasField("uid"):
        return FoundImage(reference, ImageUser(uid=image.uid.value))
    if image.username:
        return FoundImage(reference, ImageUser(name=image.username))
    return FoundImage(reference, ImageUser(uid=0))


def _spoken(seconds: float) -> str:
    return format_duration(int(seconds * 1000) / 1000)


def _handler(sandbox: pb.PodSandboxConfig) -> str:
    return sandbox.annotations.get(RUNTIME_HANDLER, "")
