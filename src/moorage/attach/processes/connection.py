"""Connection of a part that runs alone to the API server of a kubeconfig."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorage.api.errors import ForbiddenError, StatusError, UnauthorizedError
from moorage.api.logs import Log
from moorage.cluster.errors import ClusterError
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client, UnreachableError

_FIRST_ANSWER_S = 60.0
LONG_WATCH_S = 6 * 3600.0
"""Of the parts of an attachment: agents of 5,000 nodes then open one watch in two seconds, in place
of 44 a second by client-go's 5 to 10 minutes."""
_RETRY_S = 1.0

log = Log(__name__)


class ApiUnusableError(ClusterError):
    """The API server does not answer, or refuses the kubeconfig's user."""


@asynccontextmanager
async def connected_to(
    config: ClientConfig,
    user_agent: str,
    *,
    watch_s: float | None = None,
    is_patient: bool = False,
    first_answer_s: float = _FIRST_ANSWER_S,
    retry_s: float = _RETRY_S,
) -> AsyncIterator[Client]:
    """Yield a client of the API server once the server is ready.

    Its watches last at least `watch_s` where that is given. A patient one waits as long as it
    takes: a part that ends is started again in minutes only, when it has ended often.

    Raises ApiUnusableError if the server is not ready in `first_answer_s`, or refuses the user.
    """
    async with client_of(config, user_agent, watch_s=watch_s) as client:
        first = None if is_patient else first_answer_s
        await wait_ready(client, first, retry_s)
        yield client


@asynccontextmanager
async def client_of(
    config: ClientConfig, user_agent: str, *, watch_s: float | None = None
) -> AsyncIterator[Client]:
    """Yield a client, which has not asked the server anything yet.

    Raises ApiUnusableError for a certificate or key that cannot be used.
    """
    duration = {} if watch_s is None else {"watch_s": watch_s}
    try:
        async with Client(config, user_agent=user_agent, **duration) as client:
            yield client
    except ssl.SSLError as error:
        raise ApiUnusableError(
            f"{config.server}: the kubeconfig's certificate or key cannot be used: {error}"
        ) from error


async def wait_ready(
    client: Client, within_s: float | None = _FIRST_ANSWER_S, retry_s: float = _RETRY_S
) -> None:
    """Return once the server is ready. Raises ApiUnusableError as `connected_to` does."""
    try:
        async with asyncio.timeout(within_s):
            await _until_ready(client, retry_s)
    except TimeoutError as error:
        raise ApiUnusableError(
            f"{client.server} is not ready after {within_s:g} s; start it first, or "
            "correct the kubeconfig's server"
        ) from error


async def _until_ready(client: Client, retry_s: float) -> None:
    known = ""
    while True:
        try:
            await client.request("GET", "/readyz")
        except (UnauthorizedError, ForbiddenError) as error:
            raise ApiUnusableError(
                f"{client.server} refuses the kubeconfig's user: {error}"
            ) from error
        except (UnreachableError, StatusError) as error:
            if str(error) != known:
                known = str(error)
                log.warning("API server is not ready", server=client.server, reason=known)
            await asyncio.sleep(retry_s)
        else:
            return
