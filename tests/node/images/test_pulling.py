from __future__ import annotations

import base64
import json
from typing import Any

import grpc
import pytest

from moorage.api.configuration import Secret
from moorage.cri import CriError, pb
from moorage.node.config.security import ImageUser
from moorage.node.images.pulling import FoundImage, ImageError, ImagePuller
from moorage.node.pods.spec import Kind, Member
from tests.clocks import FakeClock
from tests.node.objects import UID, a_container, a_pod


class FakeEngine:
    """Images on the node and in a registry."""

    def __init__(self) -> None:
        self.present: dict[str, pb.Image] = {}
        self.registry: dict[str, pb.Image] = {"app:1": pb.Image(id="sha256:app", size=7)}
        self.user = ""
        self.failure: CriError | None = None
        self.pulls: list[tuple[str, str]] = []

    async def image(self, reference: str) -> pb.Image | None:
        return self.present.get(reference)

    async def pull_image(
        self, image: pb.ImageSpec, auth: pb.AuthConfig | None, sandbox: pb.PodSandboxConfig
    ) -> str:
        del sandbox
        user = auth.username if auth is not None else ""
        self.pulls.append((image.image, user))
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
        self.told: list[tuple[str, str, str]] = []

    def about(self, pod: Any, member: Any, type_: str, reason: str, message: str) -> None:
        del pod, member
        self.told.append((type_, reason, message))


class Case:
    def __init__(self) -> None:
        self.engine, self.events, self.clock = FakeEngine(), FakeEvents(), FakeClock()
        engine: Any = self.engine
        events: Any = self.events
        self.puller = ImagePuller(engine, events, self.clock, parallel_pulls=1)

    async def ensure(
        self, image: str = "app:1", policy: str = "", secrets: tuple[Secret, ...] = ()
    ) -> FoundImage:
        container = a_container(image=image, imagePullPolicy=policy)
        member = Member(Kind.MAIN, container)
        return await self.puller.ensure(a_pod(), member, secrets, pb.PodSandboxConfig())

    async def fail(self, **wanted: Any) -> ImageError:
        with pytest.raises(ImageError) as caught:
            await self.ensure(**wanted)
        return caught.value

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events.told]


@pytest.fixture
def case() -> Case:
    return Case()


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
    found = await case.ensure(image, policy)
    assert found.reference == "sha256:app"
    assert bool(case.engine.pulls) is pulls


async def test_what_is_missing_is_pulled(case: Case) -> None:
    await case.ensure()
    await case.ensure()
    assert case.events.told == [
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
    assert case.events.told == [("Warning", "ErrImageNeverPull", message)]


async def test_a_name_that_is_none(case: Case) -> None:
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


async def test_a_secret_that_cannot_be_read_is_passed_over(case: Case) -> None:
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
