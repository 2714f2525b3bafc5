"""The agent's metrics, defaults and status against recorded tables."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from moorage.node.metrics import Metrics
from moorage.node.options import (
    GATES,
    ContainerGarbageOptions,
    ImageGarbageOptions,
    LogRotationOptions,
    NodeOptions,
)
from tests.node.machine.test_node_status import status
from tests.recording import assert_recorded


def test_metrics() -> None:
    text = Metrics().text([""])
    by_name = {line.split()[2]: line for line in text.splitlines() if line.startswith("# TYPE")}
    helps = {f"{line.split()[2]} help": line for line in text.splitlines()
             if line.startswith("# HELP")}  # fmt: skip
    assert_recorded("node/metrics", {**by_name, **helps})


def test_options() -> None:
    def shown(options: Any) -> dict[str, str]:
        return {field.name: repr(getattr(options, field.name)) for field in fields(options)}

    table = {"gates": repr(GATES), **shown(NodeOptions(name="n"))}
    for options in (ImageGarbageOptions(), ContainerGarbageOptions(), LogRotationOptions()):
        table |= {f"{type(options).__name__}.{key}": value for key, value in shown(options).items()}
    assert_recorded("node/options", table)


def test_a_whole_status() -> None:
    wire = msgspec.to_builtins(status())
    wire["nodeInfo"].pop("kubeletVersion")
    assert_recorded("node/status", wire)
