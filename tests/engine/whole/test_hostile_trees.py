"""Trees that containers make to break the engine: it removes them, and starts with them there."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux.mounts import bind, is_mount_point, unmount_all
from moorage.wire.cri import pb
from tests.engine.whole.engines import Caller, RunningEngine, an_engine, eventually, shell
from tests.nesting import nest

pytestmark = [pytest.mark.runtime]

DEPTH = 1300
ROUNDS = 50 if os.environ.get("MOORAGE_FUZZ") else 2
# A shell makes 10,000 files in ten seconds, and the test of depth alone is the one above.
DEEPEST = 1200 if ROUNDS > 2 else 300
_SNAPSHOTTERS = ("overlayfs", "native")


@pytest.fixture(scope="module")
def engine(archive: Path) -> Iterator[RunningEngine]:
    with an_engine(archive, spares=0) as engine:
        for name in _SNAPSHOTTERS:
            engine.define(name, shutil.which("runc") or "runc", more=f'snapshotter = "{name}"\n')
        yield engine


@pytest.mark.parametrize("handler", _SNAPSHOTTERS)
async def test_a_root_file_system_of_any_depth_outlives_a_kill_and_is_removed(
    caller: Caller, engine: RunningEngine, handler: str
) -> None:
    await _until_offered(caller, handler)
    pod = await caller.run_pod(handler)
    # The shell makes them one by one, as deep as its own paths can be.
    script = f"i=0; while [ $i -lt {DEPTH} ]; do mkdir dd; cd dd; i=$((i+1)); done; echo made"
    main = await caller.run(pod, *shell(f"{script}; sleep 1000"))
    await caller.wait_for_line(main, "made")
    usage = await caller.cri.call(
        caller.cri.runtime.ContainerStats, pb.ContainerStatsRequest(container_id=main)
    )
    assert usage.stats.writable_layer.inodes_used.value > DEPTH
    await caller.restart()
    await caller.remove(main)
    await caller.restart()
    await caller.remove_pod(pod)
    assert not engine.leftovers()


async def test_an_engine_starts_with_deep_leftovers_of_every_kind(
    caller: Caller, engine: RunningEngine
) -> None:
    engine.stop()
    left = [
        engine.data / "images/layers/.old-1",
        engine.data / "images/layers/.new-1",
        engine.data / "images/layers/damaged",
        engine.data / "images/containers/.old-1",
        engine.data / "images/containers/unfinished",
        engine.data / "images/volumes/unfinished",
        engine.data / "images/ingest/unfinished",
        engine.run / "b/unknown",
        engine.run / "s/unknown",
    ]
    for path in left:
        nest(path, 1500)
    (engine.data / "images/containers/file").touch()
    await caller.start_engine()
    assert [file for file in left if file.exists()] == []


async def test_what_is_mounted_in_a_leftover_is_left_alone(
    caller: Caller, engine: RunningEngine, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("the host's")
    engine.stop()
    places = [
        engine.data / "images/containers/.old-2/upper/point",
        engine.run / "b/unknown/volumes/0",
        engine.data / "images/ingest/left/point",
    ]
    for target in places:
        target.mkdir(parents=True)
        bind(precious, target)
    try:
        await caller.start_engine()
        assert (precious / "data").read_text() == "the host's"
        # Bundles are the engine's own, and unmounted; elsewhere nothing is ever mounted.
        assert [is_mount_point(path) for path in places] == [True, False, True]
        assert not (engine.run / "b/unknown").exists()
    finally:
        for target in places:
            unmount_all(target)
    await caller.restart()
    assert [path for path in places if path.exists()] == []


async def test_random_trees_are_removed(caller: Caller, engine: RunningEngine) -> None:
    seed = random.SystemRandom().randrange(1 << 30) if ROUNDS > 2 else 3
    chance = random.Random(seed)
    pod = await caller.run_pod()
    for number in range(ROUNDS):
        depth, width = chance.randrange(1, DEEPEST), chance.randrange(1, 5)
        name = "n" * chance.randrange(1, 120)
        script = (
            f"i=0; while [ $i -lt {depth} ]; do mkdir {name}; cd {name}; "
            f"j=0; while [ $j -lt {width} ]; do ln -s / l$j; mkfifo p$j; j=$((j+1)); done; "
            "i=$((i+1)); done; chmod 0 .; echo made"
        )
        main = await caller.run(pod, *shell(script), name=f"c{number}")
        await caller.ended(main, 60)
        if chance.random() < 0.3:
            await caller.restart()
        await caller.remove(main)
    assert (await caller.containers()) == {}, f"seed {seed}"
    await caller.remove_pod(pod)
    assert not engine.leftovers(), f"seed {seed}"


async def _until_offered(caller: Caller, handler: str) -> None:
    async def is_offered() -> bool:
        status = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest())
        return handler in {runtime_handler.name for runtime_handler in status.runtime_handlers}

    await eventually(is_offered, f"handler {handler}")
