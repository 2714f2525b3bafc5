"""What commands and parts import: each module costs every start its time and memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Beside the package itself, of which rules of the registry are used elsewhere.
_SERVER = {"moorage.apiserver.server", "moorage.apiserver.endpoints"}
# Beside the package itself, whose handlers are looked at without an engine.
_ENGINE = {"moorage.engine.engine", "moorage.engine.service", "moorage.engine.sandboxes"}
_AGENT_AND_CLIENT = {"moorage.node.agent", "moorage.wire.client.rest", "aiohttp"}
# What an API server imports at the first use.
_AT_USE = {"yaml", "jwt", "h11", "cryptography.x509", "cel_expr_python", "re2", "unittest"}


@pytest.mark.parametrize(
    ("modules", "unneeded"),
    [
        (
            ["moorage.cluster.supervision.supervise"],
            {"asyncio", "ssl", "moorage.api.pods", "moorage.engine"},
        ),
        (
            [
                "moorage.cluster.parts.engine",
                *(
                    f"moorage.cli.commands.{name}"
                    for name in ("status", "down", "logs", "image", "runtimes", "doctor")
                ),
            ],
            {*_AGENT_AND_CLIENT, "moorage.apiserver"},
        ),
        (
            [f"moorage.cli.commands.{name}" for name in ("status", "logs")],
            {"asyncio", "moorage.engine", "moorage.cluster.creation"},
        ),
        (
            [
                "moorage.cluster.parts.apiserver",
                # What the part imports when the cluster has no node.
                *(f"moorage.cluster.{name}" for name in ("engine.paths", "host", "network")),
            ],
            {"grpc", "google.protobuf", *_ENGINE, "moorage.node.agent"},
        ),
        (["moorage.cluster.parts.apiserver"], {*_AT_USE, "moorage.engine.handlers"}),
        (
            # What the build imports: it is given neither of these.
            [
                *(
                    f"moorage.apiserver.registry.{name}.build"
                    for name in ("columns", "openapi", "schema")
                ),
                "moorage.apiserver.registry.kinds",
            ],
            {"cryptography", "aiohttp"},
        ),
        (
            ["moorage.cli.commands.migrate"],
            {*_AGENT_AND_CLIENT, "moorage.apiserver", "moorage.engine"},
        ),
        (
            # What `moor up` and `moor down` run themselves.
            [
                *(f"moorage.cli.commands.{name}" for name in ("up", "down")),
                *(
                    f"moorage.cluster.{name}"
                    for name in (
                        "host.start_check",
                        "creation",
                        "access.kubeconfig",
                        "supervision.start",
                        "teardown",
                    )
                ),
            ],
            {*_AGENT_AND_CLIENT, *_SERVER, "moorage.engine.engine", "grpc"},
        ),
        (
            # An agent on each node: what it loads counts once for each.
            ["moorage.cli.main", "moorage.cli.commands.runtime_agent"],
            {
                "aiohttp.web",
                "yaml",
                "moorage.cluster.cluster",
                "moorage.cluster.host",
                "moorage.cluster.images",
                "moorage.migrate.rules.plan",
            },
        ),
        (["moorage.cli.main", "moorage.cli.commands.webhook"], {"grpc", "yaml", "cryptography"}),
    ],
)
def test_nothing_is_imported_that_is_not_used(modules: list[str], unneeded: set[str]) -> None:
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert unneeded & set(ran.stdout.split()) == set()
