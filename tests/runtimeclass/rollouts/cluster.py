"""A cluster of workloads for the state machine of rollouts: what a test does to it is a line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from moorage.api.clock import format_time
from moorage.api.meta import ObjectMeta
from moorage.api.runtime_rollouts import RolloutGates, RuntimeRollout, RuntimeRolloutSpec
from moorage.runtimeclass.rollouts import (
    Observation,
    Obstacle,
    PodFacts,
    Step,
    Unmovable,
    Workload,
    step,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def rollout(name: str = "r", **spec: Any) -> RuntimeRollout:
    gates = RolloutGates(**spec.pop("gates", {}))
    return RuntimeRollout(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", generation=1),
        spec=RuntimeRolloutSpec(from_="old", to="new", gates=gates, **spec),
    )


class Cluster:
    """Workloads `w0`, `w1`, … of the class `old`, and one rollout."""

    def __init__(self, number: int = 0, **spec: Any) -> None:
        self.now = START
        self.rollout = rollout(**spec)
        self.workloads: dict[str, Workload] = {}
        self.unmovable: list[Unmovable] = []
        self.obstacle: Obstacle | None = None
        self.return_obstacle: Obstacle | None = None
        for index in range(number):
            self.add(f"w{index}")

    def add(self, name: str, class_name: str = "old", **fields: Any) -> None:
        self.workloads[name] = Workload(
            "Deployment", "default", name, f"uid-{name}", class_name, **fields
        )

    def change(self, name: str, **fields: Any) -> None:
        self.workloads[name] = msgspec.structs.replace(self.workloads[name], **fields)

    def spec(self, **fields: Any) -> None:
        """Change the rollout's specification, as a person does."""
        meta = self.rollout.metadata
        self.rollout = msgspec.structs.replace(
            self.rollout,
            spec=msgspec.structs.replace(self.rollout.spec, **fields),
            metadata=msgspec.structs.replace(meta, generation=meta.generation + 1),
        )

    def resume(self) -> None:
        self.spec(paused=False, rollback=False, resumed_at=format_time(self.now))

    def decide(self) -> Step:
        seen = Observation(
            list(self.workloads.values()), self.unmovable, self.obstacle, self.return_obstacle
        )
        return step(self.rollout, seen, self.now)

    def step(self, *, seconds: float = 1, cut: int | None = None, is_killed: bool = False) -> Step:
        """Take a step; with `cut` only so many moves are made, if killed not even the status."""
        self.now += timedelta(seconds=seconds)
        taken = self.decide()
        if is_killed:
            return taken
        self.rollout = msgspec.structs.replace(self.rollout, status=taken.status)
        for move in taken.moves[:cut]:
            self.change(
                move.workload.name,
                class_name=move.class_name,
                mark=move.mark,
                is_settled=False,
                pods=(),
            )
        return taken

    def settle(self, *names: str) -> None:
        """Let workloads have only new and ready pods; all without names."""
        for name in names or tuple(self.workloads):
            pod = PodFacts(f"{name}-pod", self.now, self.now, self.now)
            is_new = self.workloads[name].class_name == "new"
            self.change(name, is_settled=True, pods=(pod,) if is_new else ())

    def run(self, steps: int = 100) -> None:
        """Take steps until nothing is left to do; every workload settles at once."""
        for _ in range(steps):
            self.step()
            self.settle()
            if self.phase in ("Completed", "RolledBack"):
                return
        raise AssertionError(f"no end after {steps} steps: {self.rollout.status}")

    @property
    def phase(self) -> str:
        return self.rollout.status.phase

    @property
    def moved(self) -> list[str]:
        return [name for name, one in self.workloads.items() if one.class_name == "new"]

    @property
    def reason(self) -> str:
        stop = self.rollout.status.stop
        return stop.reason if stop is not None else ""

    def condition(self, type_: str) -> tuple[str, str]:
        conditions = self.rollout.status.conditions
        return next((one.status, one.reason) for one in conditions if one.type == type_)
