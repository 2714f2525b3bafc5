from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from moorage.api.clock import format_time
from moorage.api.errors import NotFoundError, StatusError, UnavailableError
from moorage.node.volumes.payload import TokenWanted
from moorage.node.volumes.tokens import PodTokens, TokenRequest
from moorage.wire.client.rest import UnreachableError
from tests.clocks import START_S, FakeClock
from tests.node.objects import UID, a_pod

WANTED = TokenWanted("vault", 3600)
POD = a_pod(serviceAccountName="robot")
DAY = 24 * 3600.0


class FakeServer:
    """Issues tokens `t1`, `t2`, … for as long as they are asked for."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.asked: list[Any] = []
        self.failure: Exception | None = None

    async def create(self, resource: Any, body: Any, namespace: str, **where: str) -> TokenRequest:
        if self.failure is not None:
            raise self.failure
        assert (body["kind"], body["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
        self.asked.append((resource.plural, namespace, where, body["spec"]))
        life_s = body["spec"]["expirationSeconds"]
        end = self._clock.now() + timedelta(seconds=life_s)
        return msgspec.convert(
            {
                "spec": {"expirationSeconds": life_s},
                "status": {
                    "token": f"t{len(self.asked)}",
                    "expirationTimestamp": format_time(end),
                },
            },
            TokenRequest,
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> FakeServer:
    return FakeServer(clock)


@pytest.fixture
def tokens(server: FakeServer, clock: FakeClock) -> PodTokens:
    return PodTokens(server, clock)  # type: ignore[arg-type]


async def test_a_token_is_bound_to_its_pod(tokens: PodTokens, server: FakeServer) -> None:
    assert await tokens.get(POD, WANTED) == "t1"
    assert server.asked == [
        (
            "serviceaccounts",
            "shop",
            {"name": "robot", "subresource": "token"},
            {
                "audiences": ["vault"],
                "expirationSeconds": 3600,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": UID},
            },
        )
    ]


@pytest.mark.parametrize(
    ("life_s", "after_s", "token"),
    [
        (3600, 2879, "t1"),
        (3600, 2880, "t2"),
        (7 * 24 * 3600, DAY - 1, "t1"),
        (7 * 24 * 3600, DAY, "t2"),
    ],
    ids=["before four fifths", "after four fifths", "within a day", "after a day"],
)
async def test_when_it_is_renewed(
    tokens: PodTokens, clock: FakeClock, life_s: int, after_s: float, token: str
) -> None:
    wanted = TokenWanted("", life_s)
    await tokens.get(POD, wanted)
    clock.advance(after_s)
    assert await tokens.get(POD, wanted) == token


async def test_the_next_renewal_is_the_first_of_the_pods(tokens: PodTokens) -> None:
    assert tokens.renewal_s(POD) is None
    await tokens.get(POD, TokenWanted("a", 7200))
    await tokens.get(POD, TokenWanted("b", 3600))
    assert tokens.renewal_s(POD) == START_S + 2880


@pytest.mark.parametrize(
    "failure", [UnreachableError("no route"), UnavailableError("busy"), NotFoundError("no account")]
)
async def test_a_token_that_is_still_good_serves_when_no_new_one_is_to_be_had(
    tokens: PodTokens, server: FakeServer, clock: FakeClock, failure: Exception
) -> None:
    await tokens.get(POD, WANTED)
    server.failure = failure
    clock.advance(3000)
    assert await tokens.get(POD, WANTED) == "t1"
    clock.advance(600)
    with pytest.raises(type(failure)):
        await tokens.get(POD, WANTED)


async def test_a_renewal_that_failed_is_not_due_again_at_once(
    tokens: PodTokens, server: FakeServer, clock: FakeClock
) -> None:
    await tokens.get(POD, WANTED)
    server.failure = UnreachableError("no route")
    clock.advance(3000)
    await tokens.get(POD, WANTED)
    due_s = tokens.renewal_s(POD)
    assert due_s is not None
    assert due_s >= clock.now().timestamp() + 10
    server.failure = None
    clock.advance(60)
    assert await tokens.get(POD, WANTED) == "t2"


async def test_the_first_token_has_no_substitute(tokens: PodTokens, server: FakeServer) -> None:
    server.failure = StatusError("no")
    with pytest.raises(StatusError):
        await tokens.get(POD, WANTED)


async def test_a_pod_that_is_forgotten_is_asked_for_again(tokens: PodTokens) -> None:
    await tokens.get(POD, WANTED)
    tokens.forget(UID)
    assert tokens.renewal_s(POD) is None
    assert await tokens.get(POD, WANTED) == "t2"


async def test_pods_and_audiences_do_not_share(tokens: PodTokens) -> None:
    other = a_pod(meta={"uid": "other"})
    result = [
        await tokens.get(POD, WANTED),
        await tokens.get(other, WANTED),
        await tokens.get(POD, TokenWanted("else", 3600)),
        await tokens.get(POD, WANTED),
    ]
    assert result == ["t1", "t2", "t3", "t1"]
