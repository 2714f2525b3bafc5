"""Credential plugins of kubeconfigs: run as client-go runs them, kept until they expire."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.api.clock import format_time
from moorage.api.errors import UnauthorizedError
from moorage.wire.client.config import ClientConfig, ConfigError, load_kubeconfig
from moorage.wire.client.credential_plugin import (
    CredentialPlugin,
    CredentialPluginError,
    PluginCredentials,
    parse_credential,
    run_plugin,
)
from moorage.wire.client.resources import NODES
from moorage.wire.client.rest import Client, UnreachableError
from tests.clocks import START, FakeClock
from tests.wire.client.fake_api import refusal, running

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def script(directory: Path, body: str) -> str:
    path = directory / "plugin"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def printed(version: str = V1, **status: Any) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def printing(directory: Path, text: str) -> str:
    (directory / "printed").write_text(text)
    return script(directory, f"echo x >> {directory}/runs; cat {directory}/printed")


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text().split())


def plugin(command: str, **fields: Any) -> CredentialPlugin:
    return CredentialPlugin(V1, command, interactive_mode="Never", **fields)


async def test_a_plugin_is_given_arguments_environment_and_cluster(tmp_path: Path) -> None:
    command = script(
        tmp_path,
        f'printf "%s %s" "$1" "$EXTRA" > {tmp_path}/given; echo "$KUBERNETES_EXEC_INFO" > '
        f"{tmp_path}/info; echo '{printed(token='t')}'",
    )
    made = plugin(
        command,
        arguments=("get-token",),
        environment={"EXTRA": "more"},
        cluster={"server": "https://s", "config": {"audience": "a"}},
    )
    assert (await run_plugin(made)).token == "t"
    assert (tmp_path / "given").read_text() == "get-token more"
    assert json.loads((tmp_path / "info").read_text()) == {
        "kind": "ExecCredential",
        "apiVersion": V1,
        "spec": {
            "interactive": False,
            "cluster": {"server": "https://s", "config": {"audience": "a"}},
        },
    }


async def test_a_credential_is_kept_until_it_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    expires = format_time(START + timedelta(seconds=60))
    command = printing(tmp_path, printed(token="t", expirationTimestamp=expires))
    credentials = PluginCredentials(plugin(command), clock)
    await credentials.current()
    await credentials.current()
    assert runs(tmp_path) == 1
    clock.advance(60)
    await credentials.current()
    assert runs(tmp_path) == 2


async def test_a_refused_credential_is_replaced(tmp_path: Path) -> None:
    credentials = PluginCredentials(plugin(printing(tmp_path, printed(token="t"))))
    refused = await credentials.current()
    credentials.refuse(refused)
    await credentials.current()
    credentials.refuse(refused)
    await credentials.current()
    assert runs(tmp_path) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no JSON", "no ExecCredential"),
        (printed(V1BETA1, token="t"), "asks for client.authentication.k8s.io/v1 ExecCredential"),
        (json.dumps({"apiVersion": V1, "kind": "ExecCredential"}), "without status"),
        (printed(), "neither a token nor"),
        (printed(clientCertificateData="c"), "without the other"),
        (printed(token="t", expirationTimestamp="soon"), "expirationTimestamp"),
    ],
)
def test_what_is_no_credential_is_refused(text: str, message: str) -> None:
    with pytest.raises(CredentialPluginError, match=message):
        parse_credential(plugin("p"), text.encode())


async def test_a_plugin_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialPluginError, match=r"plugin: it failed with exit code 3"):
        await run_plugin(plugin(script(tmp_path, "exit 3")))


async def test_a_plugin_that_is_not_installed_says_how_to_install_it() -> None:
    with pytest.raises(CredentialPluginError, match="not installed; get it from there"):
        await run_plugin(plugin("no-such-plugin-anywhere", install_hint="get it from there\n"))


async def test_a_plugin_that_prints_without_end_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(CredentialPluginError, match="more than 1048576 bytes"):
        await run_plugin(plugin(script(tmp_path, "yes")))


async def test_a_plugin_that_hangs_is_ended(tmp_path: Path) -> None:
    hanging = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    with pytest.raises(CredentialPluginError, match="not ended after"):
        await run_plugin(plugin(hanging), 0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_plugin_that_needs_a_terminal_is_not_run_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    made = CredentialPlugin(V1, script(tmp_path, ""), interactive_mode="Always")
    with pytest.raises(CredentialPluginError, match="needs a terminal"):
        await run_plugin(made)


def kubeconfig(directory: Path, given: dict[str, Any], **cluster: Any) -> Path:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://s", **cluster}}],
        "users": [{"name": "u", "user": {"exec": given}}],
    }
    path = directory / "config"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_kubeconfig_names_the_plugin(tmp_path: Path) -> None:
    given = {
        "apiVersion": V1BETA1,
        "command": "bin/plugin",
        "args": ["a"],
        "env": [{"name": "N", "value": "v"}],
        "provideClusterInfo": True,
    }
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    config = load_kubeconfig(kubeconfig(tmp_path, given, extensions=[extension]))
    assert config.plugin == CredentialPlugin(
        V1BETA1,
        str(tmp_path / "bin/plugin"),
        arguments=("a",),
        environment={"N": "v"},
        cluster={"server": "https://s", "config": {"audience": "x"}},
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"command": "p"}, "exec.apiVersion is None"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "p"}, "v1alpha1"),
        ({"apiVersion": V1, "interactiveMode": "Never"}, "exec.command is missing"),
        ({"apiVersion": V1, "command": "p"}, "exec.interactiveMode is ''"),
        ({"apiVersion": V1, "command": "p", "interactiveMode": "Maybe"}, "'Maybe'"),
        ("p", "config"),
    ],
)
def test_an_exec_that_is_wrong_is_refused(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_kubeconfig(kubeconfig(tmp_path, given))


async def test_requests_carry_the_plugins_token_and_a_new_one_after_a_refusal(
    tmp_path: Path,
) -> None:
    async with running() as (api, open_client):
        made = plugin(printing(tmp_path, printed(token="first")))
        config = ClientConfig(server=open_client.server, plugin=made)
        async with Client(config, user_agent="test") as client:
            await client.list(NODES)
            await client.list(NODES)
            (tmp_path / "printed").write_text(printed(token="second"))
            api.failures.append(refusal(401, "Unauthorized"))
            with pytest.raises(UnauthorizedError):
                await client.list(NODES)
            await client.list(NODES)
        sent = [request.headers["Authorization"] for request in api.requests]
    assert sent == ["Bearer first"] * 3 + ["Bearer second"]
    assert runs(tmp_path) == 2


async def test_without_a_credential_the_server_counts_as_unreachable(tmp_path: Path) -> None:
    config = ClientConfig(server="http://127.0.0.1:1", plugin=plugin(script(tmp_path, "exit 1")))
    async with Client(config, user_agent="test") as client:
        with pytest.raises(UnreachableError, match="exit code 1"):
            await client.list(NODES)
