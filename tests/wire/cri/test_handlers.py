"""Handlers of an engine, in each of the ways engines have reported them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from moorage.wire.cri import CriClient, HandlersUnknownError, handlers_in, handlers_of, pb
from moorage.wire.cri.generated.runtime_pb2_grpc import (
    RuntimeServiceServicer,
    add_RuntimeServiceServicer_to_server,
)

NAMES = ["", "crun", "runc"]
OLD_CONFIGURATION = json.dumps(
    {
        "containerd": {
            "defaultRuntimeName": "runc",
            "runtimes": {"runc": {"runtimeType": "io.containerd.runc.v2"}, "crun": {}},
        },
        "sandboxImage": "pause",
    }
)


# gRPC answers UNIMPLEMENTED to what a fake leaves out; by their types all calls are abstract.
_RuntimeService: Any = RuntimeServiceServicer


class FakeEngine(_RuntimeService):  # type: ignore[misc]  # see above
    """An engine that answers Version and Status, the latter with fixed text when verbose."""

    def __init__(self, handlers: list[str], configuration: str) -> None:
        self._handlers = handlers
        self._configuration = configuration

    async def Version(self, _request: Any, _context: Any) -> pb.VersionResponse:  # noqa: N802
        return pb.VersionResponse(
            version="0.1.0", runtime_name="old", runtime_version="1.0", runtime_api_version="v1"
        )

    async def Status(self, request: Any, _context: Any) -> pb.StatusResponse:  # noqa: N802
        info = {"config": self._configuration} if request.verbose else {}
        listed = [pb.RuntimeHandler(name=name) for name in self._handlers]
        return pb.StatusResponse(runtime_handlers=listed, info=info)


@contextlib.asynccontextmanager
async def engine(
    directory: Path, handlers: list[str], configuration: str
) -> AsyncIterator[CriClient]:
    server = aio.server()
    add_RuntimeServiceServicer_to_server(FakeEngine(handlers, configuration), server)
    endpoint = f"unix://{directory}/e.sock"
    server.add_insecure_port(endpoint)
    await server.start()
    try:
        async with CriClient(endpoint) as cri:
            yield cri
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    ("listed", "configuration", "names"),
    [
        (["", "runc", "kata"], "", ["", "runc", "kata"]),
        ([], OLD_CONFIGURATION, NAMES),
    ],
)
async def test_engine_of_any_age_reports_its_handlers(
    tmp_path: Path, listed: list[str], configuration: str, names: list[str]
) -> None:
    async with engine(tmp_path, listed, configuration) as cri:
        assert [handler.name for handler in await handlers_of(cri)] == names


@pytest.mark.parametrize("configuration", ["", '{"sandboxImage": "pause"}', "[crio]\n"])
async def test_engine_that_reports_none_is_refused_by_name(
    tmp_path: Path, configuration: str
) -> None:
    async with engine(tmp_path, [], configuration) as cri:
        with pytest.raises(HandlersUnknownError, match=r"engine old 1\.0 at unix:///.* --cri"):
            await handlers_of(cri)


def test_features_are_copied_and_both_are_always_set() -> None:
    reply = pb.StatusResponse(
        runtime_handlers=[
            pb.RuntimeHandler(
                name="runc",
                features=pb.RuntimeHandlerFeatures(
                    recursive_read_only_mounts=True, user_namespaces=True
                ),
            ),
            pb.RuntimeHandler(name="kata"),
        ]
    )
    runc, kata = (handler.features for handler in handlers_in(reply))
    assert runc is not None
    assert (runc.recursive_read_only_mounts, runc.user_namespaces) == (True, True)
    assert kata is not None
    assert (kata.recursive_read_only_mounts, kata.user_namespaces) == (False, False)


def test_an_old_engine_without_valid_default_lists_no_default() -> None:
    broken = OLD_CONFIGURATION.replace('"runc", "runtimes"', '"gone", "runtimes"')
    assert broken != OLD_CONFIGURATION
    assert [
        handler.name for handler in handlers_in(pb.StatusResponse(info={"config": broken}))
    ] == [
        "crun",
        "runc",
    ]


def test_a_configuration_that_is_nested_without_end_lists_no_handlers() -> None:
    deep = '{"containerd": {"runtimes": {"a": ' + "[" * 100_000
    assert handlers_in(pb.StatusResponse(info={"config": deep})) == ()
