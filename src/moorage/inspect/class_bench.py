"""Bench of classes: the same work under each class, for `moor bench classes`.

Starts and rounds alternate between the classes, so that what else the machine does meets all of
them. Every sample is kept; `summarize` is pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from moorage.api.errors import StatusError
from moorage.api.text import counted
from moorage.cluster.errors import ClusterError
from moorage.inspect.class_workloads import (
    DENSITY,
    IDLE_SCRIPT,
    MEMORY,
    METRICS,
    NETWORK,
    OVERHEAD,
    SERVER_SCRIPT,
    START,
    readings,
    throughput_script,
)
from moorage.inspect.top import read_usage
from moorage.inspect.trials import Trial, TrialResult, Trials
from moorage.runtimeclass.start_phases import percentile
from moorage.runtimes.known_classes import NO_CLASS
from moorage.wire.client.rest import Client

KIND = "moor-bench"
_MIB = 2**20

Report = Callable[[str], None]


class BenchError(ClusterError):
    """The bench cannot run: its server pod does not start."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """How much is measured under each class."""

    classes: tuple[str, ...]
    image: str
    starts: int = 5
    rounds: int = 3
    density: int = 4
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured value, in the unit of its metric; `phase:NAME` is in milliseconds."""

    runtime_class: str
    metric: str
    value: float


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that did not work under a class: while measuring what, and why."""

    runtime_class: str
    metric: str
    why: str


@dataclass(frozen=True, slots=True)
class Measurements:
    """All samples and failures of a bench, in the order in which they were taken."""

    samples: tuple[Sample, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """The medians of a class by metric, and the number of its failures."""

    runtime_class: str
    medians: dict[str, float]
    failures: int


def summarize(classes: Iterable[str], measured: Measurements) -> list[ClassSummary]:
    """Return the summary of each class.

    Pure. The same idle program runs under each class, so what its pod uses more than under the
    class that uses least is the sandbox: the overhead, whatever cgroup the runtime puts it into.
    """
    values: dict[tuple[str, str], list[float]] = {}
    for sample in measured.samples:
        values.setdefault((sample.runtime_class, sample.metric), []).append(sample.value)
    summaries = []
    for name in classes:
        medians = {}
        for metric in METRICS:
            middle = percentile(values.get((name, metric.name), ()), 0.5)
            if middle is not None:
                medians[metric.name] = middle
        failures = sum(1 for failure in measured.failures if failure.runtime_class == name)
        summaries.append(ClassSummary(name, medians, failures))
    least = min((one.medians[MEMORY] for one in summaries if MEMORY in one.medians), default=0.0)
    for summary in summaries:
        if MEMORY in summary.medians:
            summary.medians[OVERHEAD] = round(summary.medians[MEMORY] - least, 3)
    return summaries


@dataclass(slots=True)
class _Notes:
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def sample(self, runtime_class: str, metric: str, value: float | None) -> None:
        if value is not None:
            self.samples.append(Sample(runtime_class, metric, round(value, 3)))

    def failure(self, runtime_class: str, metric: str, why: str) -> None:
        self.failures.append(Failure(runtime_class, metric, why))


class ClassBench:
    """One bench in one namespace. Raises what `Trials` does, and BenchError."""

    def __init__(self, client: Client, namespace: str, plan: BenchPlan, report: Report) -> None:
        self._client = client
        self._namespace = namespace
        self._plan = plan
        self._report = report
        self._notes = _Notes()

    async def run(self) -> Measurements:
        """Measure every class, and remove the pods, also when cancelled."""
        async with Trials(self._client, self._namespace, kind=KIND) as trials:
            await self._starts(trials)
            await self._throughput(trials)
            for name in self._plan.classes:
                await self._density(trials, name)
        return Measurements(tuple(self._notes.samples), tuple(self._notes.failures))

    def _trial(self, name: str, script: str) -> Trial:
        return Trial(name, self._plan.image, ("sh", "-c", script), timeout_s=self._plan.timeout_s)

    async def _starts(self, trials: Trials) -> None:
        for number in range(self._plan.starts):
            self._report(f"starts {number + 1} of {self._plan.starts}")
            for name in self._plan.classes:
                result = await trials.run(self._trial(name, "exec true"))
                if not self._check(result, START):
                    continue
                self._notes.sample(name, START, result.start_ms)
                for phase in result.phases:
                    self._notes.sample(name, f"phase:{phase.name}", phase.ms)

    async def _throughput(self, trials: Trials) -> None:
        if not self._plan.rounds:
            return
        server, address = await self._server(trials)
        script = throughput_script(address)
        for number in range(self._plan.rounds):
            for name in self._plan.classes:
                self._report(f"throughput {number + 1} of {self._plan.rounds}: {name}")
                result = await trials.run(self._trial(name, script))
                self._read(name, result)
        await trials.remove(server)

    def _read(self, name: str, result: TrialResult) -> None:
        for reading in readings(result.output):
            if reading.value is None:
                self._notes.failure(name, reading.metric, reading.why)
            else:
                self._notes.sample(name, reading.metric, reading.value)
        self._check(result, "throughput")

    async def _server(self, trials: Trials) -> tuple[str, str]:
        """Start the pod that the network is measured with, without a class; return its address."""
        trial = replace(self._trial(NO_CLASS, SERVER_SCRIPT), timeout_s=3600)
        try:
            server = await trials.start(trial)
        except StatusError as error:
            raise BenchError(f"the server pod of metric {NETWORK}: {error}") from error
        deadline_s = _now_s() + self._plan.timeout_s
        why, pod = await trials.wait_running(server, deadline_s)
        if why or pod is None or not pod.status.pod_ip:
            raise BenchError(f"the server pod of metric {NETWORK}: {why or 'it has no address'}")
        return server, pod.status.pod_ip

    async def _density(self, trials: Trials, name: str) -> None:
        """Start pods at once, and read what each uses while all are idle."""
        count = self._plan.density
        if not count:
            return
        self._report(f"density: {counted(count, 'pod')} of {name}")
        begun_s = _now_s()
        trial = self._trial(name, IDLE_SCRIPT)
        started = await asyncio.gather(
            *(trials.start(trial) for _ in range(count)), return_exceptions=True
        )
        names = [pod_name for pod_name in started if isinstance(pod_name, str)]
        for refused in started:
            if isinstance(refused, StatusError):
                self._notes.failure(name, DENSITY, refused.message)
            elif isinstance(refused, BaseException):
                raise refused
        deadline_s = begun_s + self._plan.timeout_s
        answers = await asyncio.gather(
            *(trials.wait_running(pod_name, deadline_s) for pod_name in names)
        )
        spent_s = _now_s() - begun_s
        running = [pod for why, pod in answers if not why and pod is not None]
        for why, _ in answers:
            if why:
                self._notes.failure(name, DENSITY, why)
        if running:
            self._notes.sample(name, DENSITY, len(running) / spent_s)
        nodes = {pod.spec.node_name for pod in running}
        usages = await read_usage(self._client, nodes, self._namespace)
        for pod in running:
            usage = usages.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
            if usage is None:
                continue
            self._notes.sample(name, MEMORY, _mib(usage.memory_bytes))
        for pod_name in names:
            await trials.remove(pod_name)

    def _check(self, result: TrialResult, metric: str) -> bool:
        """Note a failure of a trial; return whether it succeeded."""
        if not result.is_good:
            why = f"{result.outcome}: {result.reason}" if result.reason else result.outcome
            self._notes.failure(result.runtime_class, metric, why)
        return result.is_good


def _mib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / _MIB


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def table_columns(summaries: Sequence[ClassSummary]) -> list[str]:
    """Return the metrics that any class has a value of, in the order of `METRICS`."""
    known = {name for summary in summaries for name in summary.medians}
    return [metric.name for metric in METRICS if metric.name in known]
