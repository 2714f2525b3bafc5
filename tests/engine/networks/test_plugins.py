"""Chains of plugins: programs that say what they were asked, and some that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.networks import CniError, Conflist, Plugins, RuntimeConf
from tests.engine.handlers.programs import program

ANSWER = {"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.2/24"}]}
_NOTING = """
here=$(dirname "$0"); me=$(basename "$0")
echo "$CNI_COMMAND $me $CNI_CONTAINERID ${{CNI_NETNS:-none}} $CNI_IFNAME $CNI_ARGS" >>"$here/calls"
cat >>"$here/$me.$CNI_COMMAND"
[ "$CNI_COMMAND" = DEL ] || {answer}
"""


class Bench:
    """A directory of plugins and what they were asked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plugins = Plugins((directory,))

    def plugin(self, name: str, answer: str = f"echo '{json.dumps(ANSWER)}'") -> None:
        program(self.directory, name, _NOTING.format(answer=answer))

    def network(self, *kinds: str) -> Conflist:
        plugins = tuple({"type": kind, "capabilities": {"portMappings": True}} for kind in kinds)
        return Conflist("n", "1.0.0", plugins, Path("/file"))

    @property
    def calls(self) -> list[str]:
        file = self.directory / "calls"
        return [line.strip() for line in file.read_text().splitlines()] if file.exists() else []

    def given(self, call: str) -> Any:
        return json.loads((self.directory / call).read_text())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "bin")


CONF = RuntimeConf(
    container_id="c1",
    netns=Path("/n/net"),
    capability_args={"portMappings": [{"hostPort": 80}]},
    args={"IgnoreUnknown": "1", "K8S_POD_NAME": "p"},
)


async def test_a_chain_adds_in_order_and_removes_backwards(bench: Bench) -> None:
    for name in ("first", "second"):
        bench.plugin(name)
    attachment = await bench.plugins.add(bench.network("first", "second"), CONF)
    assert attachment.addresses == ("10.9.0.2",)
    assert bench.given("second.ADD")["prevResult"] == ANSWER
    await bench.plugins.remove(attachment, Path("/n/net"))
    words = "IgnoreUnknown=1;K8S_POD_NAME=p"
    assert bench.calls == [
        f"{command} {name} c1 /n/net eth0 {words}"
        for command, name in (
            ("ADD", "first"),
            ("ADD", "second"),
            ("DEL", "second"),
            ("DEL", "first"),
        )
    ]
    removal = bench.given("first.DEL")
    assert removal["prevResult"] == ANSWER
    assert removal["runtimeConfig"] == {"portMappings": [{"hostPort": 80}]}


async def test_a_removal_works_without_the_namespace(bench: Bench) -> None:
    bench.plugin("first")
    attachment = await bench.plugins.add(bench.network("first"), CONF)
    await bench.plugins.remove(attachment, None)
    assert " none eth0 " in bench.calls[-1]


async def test_plugin_failure_carries_its_message_and_is_undone(bench: Bench) -> None:
    bench.plugin("first")
    bench.plugin(
        "second", """{ echo '{"code": 7, "msg": "no room", "details": "at all"}'; exit 1; }"""
    )
    with pytest.raises(CniError, match="second ADD: no room at all"):
        await bench.plugins.add(bench.network("first", "second"), CONF)
    assert [line.split()[:2] for line in bench.calls] == [
        ["ADD", "first"],
        ["ADD", "second"],
        ["DEL", "second"],
        ["DEL", "first"],
    ]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("echo nonsense", "nonsense"),
        ("{ echo plain words; exit 2; }", "plain words"),
        ("exit 3", "failed without a message"),
        ("""echo '{"ips": [{"addr": "10.0.0.1/8"}]}'""", "not a CNI result"),
    ],
)
async def test_a_plugin_that_answers_nonsense_is_an_error(
    bench: Bench, answer: str, words: str
) -> None:
    bench.plugin("first", answer)
    with pytest.raises(CniError, match=words):
        await bench.plugins.add(bench.network("first"), CONF)


async def test_a_plugin_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(CniError, match="absent not found in"):
        await bench.plugins.add(bench.network("absent"), CONF)


@pytest.mark.parametrize(
    ("capability_args", "names"),
    [
        ({"portMappings": [{"hostPort": 80}]}, ["bridge", "portmap"]),
        ({"portMappings": []}, ["bridge"]),
        ({"bandwidth": {"ingressRate": 1}}, ["bridge"]),
        ({}, ["bridge"]),
    ],
)
async def test_portmap_runs_only_for_sandboxes_with_host_ports(
    bench: Bench, capability_args: dict[str, Any], names: list[str]
) -> None:
    for name in ("bridge", "portmap"):
        bench.plugin(name)
    conf = RuntimeConf(container_id="c1", netns=Path("/n/net"), capability_args=capability_args)
    attachment = await bench.plugins.add(bench.network("bridge", "portmap"), conf)
    await bench.plugins.remove(attachment, None)
    expected = [("ADD", name) for name in names] + [("DEL", name) for name in reversed(names)]
    assert [tuple(line.split()[:2]) for line in bench.calls] == expected


async def test_a_plugin_that_others_can_write_is_not_run(bench: Bench) -> None:
    bench.plugin("first")
    (bench.directory / "first").chmod(0o777)
    with pytest.raises(CniError, match=r"refusing to run network plugin first: .*chmod go-w"):
        await bench.plugins.add(bench.network("first"), CONF)
    assert bench.calls == []
