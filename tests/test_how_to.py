"""What pages show can be used as it is: handler files and manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.engine.handlers import parse_definition
from tests.documents import MARKED, blocks


def _shown(language: str) -> list[Any]:
    return [
        pytest.param(block.text, id=f"{page.stem}-{block.line}")
        for page in MARKED
        for block in blocks(page.read_text())
        if block.language == language
    ]


@pytest.mark.parametrize("text", _shown("toml"))
def test_a_handler_file_is_well_formed(text: str) -> None:
    parse_definition(Path("/etc/moorage/handlers.d/shown.toml"), text.encode())


@pytest.mark.parametrize("text", _shown("yaml"))
def test_a_manifest_is_well_formed(text: str) -> None:
    for manifest in yaml.safe_load_all(text):
        assert manifest["apiVersion"]
        assert manifest["kind"]
        assert manifest["metadata"]["name"]
