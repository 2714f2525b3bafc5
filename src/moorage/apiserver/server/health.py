"""Health endpoints: liveness, readiness and version.

Source: API docs "Kubernetes API health endpoints".
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping

from moorage import __version__
from moorage.api.release import KUBERNETES, MAJOR, MINOR
from moorage.apiserver.endpoints.replies import Reply, json_reply, text_reply
from moorage.apiserver.endpoints.routing import is_true

Check = Callable[[], bool]
_PATHS = ("healthz", "livez", "readyz")


def is_health_path(path: str) -> bool:
    """Return whether a path is one of the health endpoints' or below."""
    return path.strip("/").partition("/")[0] in _PATHS


class Health:
    """Named checks; `readyz` runs all of them, the other endpoints only the live ones."""

    def __init__(self, live: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        everything = {**live, **ready}
        self._checks = {"healthz": dict(live), "livez": dict(live), "readyz": everything}

    def reply(self, path: str, query: Mapping[str, str]) -> Reply | None:
        """Return the response of a health path; None for any other path."""
        endpoint, _, check = path.strip("/").partition("/")
        if endpoint not in _PATHS:
            return None
        checks = self._checks[endpoint]
        if check:
            if check not in checks:
                return text_reply("404 page not found\n", 404)
            return text_reply("ok") if checks[check]() else _failed(endpoint, {check: False})
        results = {name: holds() for name, holds in checks.items()}
        if not all(results.values()):
            return _failed(endpoint, results)
        if is_true(query, "verbose"):
            return text_reply(_listed(results) + f"{endpoint} check passed\n")
        return text_reply("ok")


def _failed(endpoint: str, results: Mapping[str, bool]) -> Reply:
    return text_reply(_listed(results) + f"{endpoint} check failed\n", 500)


def _listed(results: Mapping[str, bool]) -> str:
    return "".join(
        f"[+]{name} ok\n" if holds else f"[-]{name} failed: reason withheld\n"
        for name, holds in results.items()
    )


def version_reply() -> Reply:
    """Return the `/version` document: the Kubernetes version; `gitVersion` also has Moorage's."""
    return json_reply(
        {
            "major": MAJOR,
            "minor": MINOR,
            "emulationMajor": MAJOR,
            "emulationMinor": MINOR,
            "minCompatibilityMajor": MAJOR,
            "minCompatibilityMinor": str(int(MINOR) - 1),
            "gitVersion": f"v{KUBERNETES}+moorage.{__version__}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": platform.python_implementation().lower(),
            "platform": f"{platform.system().lower()}/{_architecture()}",
        }
    )


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
