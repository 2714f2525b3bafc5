"""A webhook server that the tests of this directory share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.cluster.access.identities import Authority
from tests.apiserver.webhook_server import WebhookServer, webhooks


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    async with webhooks(Authority(tmp_path, datetime.now(UTC))) as served:
        yield served
