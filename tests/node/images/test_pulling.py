from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from moorage.api.configuration import Secret
from moorage.node.config.security import ImageUser
from moorage.node.images.pulling import FoundImage, ImagePuller
from moorage.node.images.records import PullRecords
from moorage.node.images.verification import Verification
from moorage.node.pod_facts.containers import Kind, Member
from moorage.node.pod_facts.errors import SyncError
from moorage.node.pod_facts.labels import RUNTIME_HANDLER
from moorage.wire.cri import CriError, pb
from tests.clocks import FakeClock
from tests.node.objects import UID, a_container, a_pod


class FakeEngine:
    """Images on the node and in a registry."""

    def __init__(self) -> None:
        self.present: dict[str, pb.Image] = {}
        self.registry: dict[str, pb.Image] = {"app:1": pb.Image(id="sha256:app", size=7)}
        self.user = ""
        self.asked_for: list[tuple[str, str]] = []
        self.failure: CriError | None = None
        self.pulls: list[tuple[str, str]] = []
        self.gate: asyncio.Event | None = None
        self.began = asyncio.Event()

    async def image(self, reference: str, handler: str = "") -> pb.Image | None:
        self.asked_for.append((reference, handler))
        return self.present.get(reference)

    async def pull_image(
        self, image: pb.ImageSpec, auth: pb.AuthConfig | None, sandbox: pb.PodSandboxConfig
    ) -> str:
        del sandbox
        user = auth.username if auth is not None else ""
        assert image.user_specified_image == image.image
        self.pulls.append((image.image, user))
        self.began.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.user != user or image.image not in self.registry:
            raise refused("denied")
        self.present[image.image] = self.registry[image.image]
        return self.present[image.image].id


def refused(sentence: str) -> CriError:
    return CriError("PullImage", grpc.StatusCode.UNKNOWN, sentence)


class FakeEvents:
    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []

    def container(self, pod: Any, member: Any, type_: str, reason: str, message: str) -> None:
        del pod, member
        self.recorded.append((type_, reason, message))


class Case:
    """A node; `restart` is its agent's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.engine, self.events, self.clock = FakeEngine(), FakeEvents(), FakeClock()
        self.verification = Verification()
        self.restart()

    def restart(self) -> None:
        engine: Any = self.engine
        events: Any = self.events
        self.records = PullRecords(self.directory, self.clock)
        self.records.load()
        self.puller = ImagePuller(
            engine, events, self.clock, parallel_pulls=1, records=self.records,
            verification=self.verification,
        )  # fmt: skip

    async def ensure(
        self, image: str = "app:1", policy: str = "", secrets: tuple[Secret, ...] = ()
    ) -> FoundImage:
        container = a_container(image=image, imagePullPolicy=policy)
        member = Member(Kind.MAIN, container)
        return await self.puller.ensure(a_pod(), member, secrets, pb.PodSandboxConfig())

    async def fail(self, **wanted: Any) -> SyncError:
        with pytest.raises(SyncError) as caught:
            await self.ensure(**wanted)
        return caught.value

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events.recorded]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


async def test_what_is_present_is_looked_up_for_the_pods_handler(case: Case) -> None:
    """An index's digest names the images of all its platforms, and handlers may differ in it."""
    member = Member(Kind.MAIN, a_container(image="app:1"))
    sandbox = pb.PodSandboxConfig(annotations={RUNTIME_HANDLER: "wasmtime"})
    await case.puller.ensure(a_pod(), member, (), sandbox)
    assert case.engine.asked_for == [("app:1", "wasmtime")] * 2


PRESENT = (
    "Normal",
    "Pulled",
    'Container image "app:1" already present on machine and can be accessed by the pod',
)


@pytest.mark.parametrize(
    ("image", "policy", "pulls"),
    [
        ("app:1", "", False),
        ("app:1", "IfNotPresent", False),
        ("app:1", "Never", False),
        ("app:1", "Always", True),
        ("app:latest", "", True),
        ("app", "", True),
        ("app:latest", "IfNotPresent", False),
    ],
)
async def test_what_is_present_is_pulled_only_by_policy(
    case: Case, image: str, policy: str, pulls: bool
) -> None:
    for name in ("app:1", "app:latest"):
        case.engine.present[name] = case.engine.registry[name] = pb.Image(id="sha256:app")
    image_status = await case.ensure(image, policy)
    assert image_status.reference == "sha256:app"
    assert bool(case.engine.pulls) is pulls


async def test_what_is_missing_is_pulled(case: Case) -> None:
    await case.ensure()
    await case.ensure()
    assert case.events.recorded == [
        ("Normal", "Pulling", 'Pulling image "app:1"'),
        (
            "Normal",
            "Pulled",
            'Successfully pulled image "app:1" in 0s (0s including waiting). Image size: 7 bytes.',
        ),
        PRESENT,
    ]


async def test_never_means_never(case: Case) -> None:
    error = await case.fail(policy="Never")
    message = 'Container image "app:1" is not present with pull policy of Never'
    assert (error.reason, error.message) == ("ErrImageNeverPull", message)
    assert case.events.recorded == [("Warning", "ErrImageNeverPull", message)]


async def test_invalid_image_name_is_rejected(case: Case) -> None:
    error = await case.fail(image="APP")
    assert error.reason == "InvalidImageName"
    assert error.message.startswith('Failed to apply default image tag "APP": couldn\'t parse')
    assert case.reasons == ["InspectFailed"]


async def test_after_a_failure_it_backs_off_and_says_why(case: Case) -> None:
    first = await case.fail(image="gone:1")
    assert (first.reason, first.retry_s) == ("ErrImagePull", None)
    second = await case.fail(image="gone:1")
    assert (second.reason, second.retry_s) == ("ImagePullBackOff", 10.0)
    assert second.message == (
        'Back-off pulling image "gone:1": ErrImagePull: rpc error: code = Unknown desc = denied'
    )
    assert case.reasons == ["Pulling", "Failed", "BackOff"]
    assert len(case.engine.pulls) == 1


async def test_pauses_double_and_success_forgets_them(case: Case) -> None:
    pauses = []
    for _ in range(7):
        await case.fail(image="gone:1")
        held = await case.fail(image="gone:1")
        assert held.retry_s is not None
        pauses.append(held.retry_s - case.clock.monotonic())
        case.clock.advance(pauses[-1])
    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    case.engine.registry["gone:1"] = pb.Image(id="sha256:back")
    assert (await case.ensure("gone:1")).reference == "sha256:back"


async def test_another_pod_is_not_held_back(case: Case) -> None:
    await case.fail(image="gone:1")
    case.puller.forget(UID)
    assert (await case.fail(image="gone:1")).reason == "ErrImagePull"


@pytest.mark.parametrize(
    ("sentence", "reason", "message"),
    [
        (
            "RegistryUnavailable: 503",
            "RegistryUnavailable",
            "image pull failed for app:1 because the registry is unavailable: 503",
        ),
        (
            "SignatureValidationFailed: no key",
            "SignatureValidationFailed",
            "image pull failed for app:1 because the signature validation failed: no key",
        ),
    ],
)
async def test_causes_that_engines_name(
    case: Case, sentence: str, reason: str, message: str
) -> None:
    case.engine.failure = refused(sentence)
    error = await case.fail()
    assert (error.reason, error.message) == (reason, message)


def a_secret(*users: str) -> Secret:
    auths = {f"docker.io{'/library' * index}": {"username": u} for index, u in enumerate(users)}
    text = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return Secret(type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": text})


async def test_every_fitting_credential_is_tried(case: Case) -> None:
    case.engine.user = "good"
    await case.ensure(secrets=(a_secret("good", "bad"),))
    assert case.engine.pulls == [("app:1", "bad"), ("app:1", "good")]


async def test_invalid_pull_secret_is_ignored(case: Case) -> None:
    broken = Secret(type="kubernetes.io/dockercfg", data={".dockercfg": "!"})
    await case.ensure(secrets=(broken,))
    assert case.engine.pulls == [("app:1", "")]


@pytest.mark.parametrize(
    ("image", "user"),
    [
        (pb.Image(id="i", uid=pb.Int64Value(value=7)), ImageUser(uid=7)),
        (pb.Image(id="i", uid=pb.Int64Value(value=0)), ImageUser(uid=0)),
        (pb.Image(id="i", username="www"), ImageUser(name="www")),
        (pb.Image(id="i"), ImageUser(uid=0)),
    ],
)
async def test_whom_an_image_runs_as(case: Case, image: pb.Image, user: ImageUser) -> None:
    case.engine.present["app:1"] = image
    assert (await case.ensure()).user == user


def secret_of(user: str, *, uid: str = "u1", name: str = "pull") -> Secret:
    auths = {"docker.io": {"username": user, "password": "x"}}
    text = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return msgspec.convert(
        {
            "metadata": {"uid": uid, "namespace": "team", "name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": text},
        },
        Secret,
    )


MINE = secret_of("good")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_private_image_is_not_for_a_pod_without_its_secret(
    case: Case, *, is_restarted: bool
) -> None:
    case.engine.user = "good"
    await case.ensure(secrets=(MINE,))
    if is_restarted:
        case.restart()
    for stranger in ((), (secret_of("bad", uid="u2", name="other"),)):
        error = await case.fail(policy="IfNotPresent", secrets=stranger)
        assert error.reason == "ErrImagePull"
        assert "denied" in error.message
        case.puller.forget(UID)
        never = await case.fail(policy="Never", secrets=stranger)
        message = 'Container image "app:1" is not present with pull policy of Never'
        assert (never.reason, never.message) == ("ErrImageNeverPull", message)
        # By its id it is the same image.
        case.engine.present["sha256:app"] = case.engine.registry["app:1"]
        assert (await case.fail(image="sha256:app", policy="Never", secrets=stranger)).reason == (
            "ErrImageNeverPull"
        )
    pulls = len(case.engine.pulls)
    for policy in ("IfNotPresent", "Never"):
        for own in (MINE, secret_of("good", uid="u3", name="copy"), secret_of("renewed")):
            assert (await case.ensure(policy=policy, secrets=(own,))).reference == "sha256:app"
    assert len(case.engine.pulls) == pulls
    assert case.events.recorded[-1] == PRESENT


async def test_credential_that_pulled_once_grants_the_image_from_then_on(case: Case) -> None:
    case.engine.user = "good"
    await case.ensure(secrets=(MINE,))
    case.engine.user = "other"
    theirs = secret_of("other", uid="u2", name="other")
    await case.ensure(secrets=(theirs,))
    assert case.engine.pulls[-1] == ("app:1", "other")
    pulls = len(case.engine.pulls)
    for credential in (MINE, theirs):
        await case.ensure(secrets=(credential,))
    assert len(case.engine.pulls) == pulls


async def test_an_image_pulled_without_credentials_is_everybodys(case: Case) -> None:
    await case.ensure()
    case.engine.user = "good"
    for secrets in ((), (MINE,)):
        await case.ensure(policy="Never", secrets=secrets)
    assert case.engine.pulls == [("app:1", "")]


@pytest.mark.parametrize("policy", ["NeverVerify", "NeverVerifyPreloadedImages"])
async def test_preloaded_images_are_everybodys(case: Case, policy: str) -> None:
    case.verification = Verification(policy)
    case.restart()
    case.engine.present["app:1"] = case.engine.registry["app:1"]
    case.engine.user = "good"
    await case.ensure(policy="Never")
    # A pull that fails changes nothing about that.
    assert (await case.fail(policy="Always")).reason == "ErrImagePull"
    await case.ensure(policy="Never")


async def test_never_verify_is_as_before(case: Case) -> None:
    case.verification = Verification("NeverVerify")
    case.restart()
    case.engine.user = "good"
    await case.ensure(secrets=(MINE,))
    await case.ensure(policy="Never")


@pytest.mark.parametrize(
    "verification",
    [Verification("AlwaysVerify"),
     Verification("NeverVerifyAllowlistedImages", ("docker.io/library/other",))],
)  # fmt: skip
async def test_stricter_policies_look_at_preloaded_images_too(
    case: Case, verification: Verification
) -> None:
    case.verification = verification
    case.restart()
    case.engine.present["app:1"] = case.engine.registry["app:1"]
    assert (await case.fail(policy="Never")).reason == "ErrImageNeverPull"
    await case.ensure(policy="IfNotPresent")
    await case.ensure(policy="Never")
    assert case.engine.pulls == [("app:1", "")]


async def test_pull_interrupted_by_a_restart_grants_the_image_to_no_pod(case: Case) -> None:
    case.engine.user = "good"
    case.engine.gate = asyncio.Event()
    pull = asyncio.create_task(case.ensure(secrets=(MINE,)))
    await case.engine.began.wait()
    pull.cancel()
    await asyncio.wait([pull])
    # The engine goes on with what it was asked for.
    case.engine.gate = None
    image = case.engine.registry["app:1"]
    case.engine.present["app:1"] = case.engine.present["app@sha256:" + "0" * 64] = image
    case.restart()
    await case.puller.recover()
    for name in ("app:1", "app@sha256:" + "0" * 64):
        assert (await case.fail(image=name, policy="Never")).reason == "ErrImageNeverPull"
    assert case.records.unsettled() == []
    await case.ensure(secrets=(MINE,))
    await case.ensure(policy="Never", secrets=(MINE,))


async def test_a_pod_that_goes_during_a_pull_leaves_a_preloaded_image_to_all(case: Case) -> None:
    case.engine.present["app:1"] = case.engine.registry["app:1"]
    case.engine.gate = asyncio.Event()
    pull = asyncio.create_task(case.ensure(policy="Always"))
    await case.engine.began.wait()
    pull.cancel()
    await asyncio.wait([pull])
    await case.ensure(policy="Never")
    await case.puller.recover()
    case.restart()
    await case.ensure(policy="Never")


async def test_without_room_for_a_record_nothing_is_pulled(case: Case) -> None:
    (case.directory / "pulling").rmdir()
    error = await case.fail()
    assert error.reason == "ErrImagePull"
    assert error.message.startswith("failed to record image pull intent: ")
    assert case.engine.pulls == []


async def test_records_are_forgotten_with_their_images(case: Case) -> None:
    case.engine.user = "good"
    await case.ensure(secrets=(MINE,))
    await case.puller.tidy([], case.clock.now())
    assert case.records.is_pulled("app:1", "sha256:app"), "too young"
    case.clock.advance(120)
    await case.puller.tidy([], case.clock.now())
    assert not case.records.is_pulled("app:1", "sha256:app")


async def test_pulls_without_a_result_are_settled_while_the_agent_runs(case: Case) -> None:
    """A round of garbage collection does what a restart would."""
    case.engine.user = "good"
    case.engine.gate = asyncio.Event()
    pull = asyncio.create_task(case.ensure(secrets=(MINE,)))
    await case.engine.began.wait()
    pull.cancel()
    await asyncio.wait([pull])
    case.engine.present["app:1"] = case.engine.registry["app:1"]
    assert case.records.unsettled() != []
    await case.puller.tidy(["sha256:app"], case.clock.now())
    assert case.records.unsettled() == []
    assert (await case.fail(policy="Never")).reason == "ErrImageNeverPull"
