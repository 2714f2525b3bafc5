"""Health paths and the version."""

from __future__ import annotations

import json
import platform

import pytest

from moorage import __version__
from moorage.apiserver.server.own_endpoints import Health, version_reply


def _health(*, live: bool = True, ready: bool = True) -> Health:
    return Health({"ping": lambda: live}, {"store": lambda: ready, "sync": lambda: True})


@pytest.mark.parametrize(
    ("live", "ready", "path", "status", "text"),
    [
        (True, True, "/healthz", 200, "ok"),
        (True, True, "/livez/", 200, "ok"),
        (True, False, "/livez", 200, "ok"),
        (True, True, "/readyz", 200, "ok"),
        (True, False, "/readyz", 500, "[+]ping ok\n[-]store failed: reason withheld\n[+]sync ok\n"
         "readyz check failed\n"),
        (False, True, "/healthz", 500, "[-]ping failed: reason withheld\nhealthz check failed\n"),
        (True, False, "/readyz/sync", 200, "ok"),
        (True, False, "/readyz/store", 500, "[-]store failed: reason withheld\n"
         "readyz check failed\n"),
        (True, True, "/livez/store", 404, "404 page not found\n"),
        (True, True, "/readyz/none", 404, "404 page not found\n"),
    ],
)  # fmt: skip
def test_health_paths(live: bool, ready: bool, path: str, status: int, text: str) -> None:
    reply = _health(live=live, ready=ready).reply(path, {})
    assert reply is not None
    assert (reply.status, reply.body.decode()) == (status, text)
    assert reply.content_type.startswith("text/plain")


def test_a_verbose_answer_lists_the_checks() -> None:
    reply = _health().reply("/readyz", {"verbose": "true"})
    assert reply is not None
    assert reply.body == b"[+]ping ok\n[+]store ok\n[+]sync ok\nreadyz check passed\n"


@pytest.mark.parametrize("path", ["/", "/health", "/api", "/api/readyz"])
def test_other_paths_are_not_its_own(path: str) -> None:
    assert _health().reply(path, {}) is None


def test_the_version_is_of_the_wire_and_of_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine, name in (("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        document = json.loads(version_reply().body)
        assert document == {
            "major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "37",
            "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
            "gitVersion": f"v1.37.0+moorage.{__version__}", "gitCommit": "",
            "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
            "compiler": "cpython", "platform": f"linux/{name}",
        }  # fmt: skip
