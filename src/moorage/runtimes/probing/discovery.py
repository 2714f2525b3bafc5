"""Discovery of a node's handlers: which of them work, and what each supports.

    engine's handlers ─▶ fingerprints ─▶ cached? ─yes─▶ state ─▶ listeners
    changed files ─────▶                    │no
                                            ▼
                        plain probe of each, at once ─▶ working, or broken with back-off
                                            ▼
                        suite of features, one handler at a time, in the background

Nothing is polled: a round follows a change of the handlers or of a watched file, or the retry of a
broken handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from moorage.api.clock import Clock, format_time, sleep_unless_set
from moorage.api.logs import Log
from moorage.api.names import dns_label_errors
from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.api.runtime_group import UNSUPPORTED, ProfileFeature
from moorage.linux.inotify import Inotify
from moorage.runtimeclass.features import FEATURES
from moorage.runtimes.probing.cache import ProbeCache, ProbedHandler, ProbeRecord
from moorage.runtimes.probing.carrier import CarrierError, Outcome, ProbeCarrier, ProbeResult
from moorage.runtimes.probing.evidence import (
    Evidence,
    HandlerState,
    KnownHandler,
    Working,
    isolation_of,
    stable_text,
)
from moorage.runtimes.probing.fingerprint import fingerprint
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.running import WORKING_DEADLINE_S, run_plain, run_suite
from moorage.runtimes.probing.verdicts import findings, probes_of, profile_features
from moorage.wire.client.backoff import Backoff

log = Log(__name__)

_AT_ONCE = 4
_ENGINE_RETRY_S, _ENGINE_RETRY_LIMIT_S = 0.2, 10.0
_RETRY_S, _RETRY_LIMIT_S = 30.0, 3600.0
_FOREVER_S = 24 * 3600.0
_OUTPUT_LIMIT = 8192
_QUIET_S = 0.1
"""Time in which further changes of files are awaited."""


class HandlerDiscovery:
    """The handlers of one node. `run()` probes until cancelled; listeners get every change."""

    def __init__(
        self,
        carrier: ProbeCarrier,
        cache: ProbeCache,
        host: HostFacts,
        clock: Clock,
        *,
        lists_unproven: bool = False,
        working_deadline_s: float = WORKING_DEADLINE_S,
    ) -> None:
        """With `lists_unproven` a handler is reported until a probe shows that it does not work."""
        self._carrier = carrier
        self._cache = cache
        self._host = host
        self._clock = clock
        self._lists_unproven = lists_unproven
        self._deadline_s = working_deadline_s
        self._digests = cache.load_digests()
        self._engine = ""
        self._handlers: tuple[KnownHandler, ...] = ()
        self._unusable: set[str] = set()
        self._states: dict[str, HandlerState] = {}
        self._is_listed = False
        self._retries: dict[str, tuple[Backoff, float]] = {}
        self._tried: set[str] = set()
        """Fingerprints whose features were probed by this process."""
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._listed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def states(self) -> Mapping[str, HandlerState]:
        """Return the state of each handler of the engine, by name."""
        return self._states

    @property
    def is_listed(self) -> bool:
        """Return whether the engine has listed its handlers, so that `states` is of all of them."""
        return self._is_listed

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call a function after every change of the states. It must not block."""
        self._listeners.append(listener)

    async def wait_listed(self) -> None:
        """Return once the engine has listed its handlers."""
        await self._listed.wait()

    async def wait_settled(self) -> None:
        """Return once every handler of the engine is known to work or not."""
        await self._settled.wait()

    def set_handlers(self, engine: str, handlers: Iterable[KnownHandler]) -> None:
        """Take over the handlers that the engine lists now. `engine` is its name and version.

        A handler whose name is no DNS label is left out, with a warning: no RuntimeClass can name
        it, and one label made of it would have the API refuse those of all others.
        """
        listed: list[KnownHandler] = []
        unusable: set[str] = set()
        for handler in handlers:
            if dns_label_errors(handler.name):
                unusable.add(handler.name)
            else:
                listed.append(handler)
        for name in sorted(unusable - self._unusable):
            log.warning("handler is left out: no RuntimeClass can have its name", handler=name)
        self._unusable = unusable
        self._list(engine, tuple(listed))

    def _list(self, engine: str, listed: tuple[KnownHandler, ...]) -> None:
        if (engine, listed) == (self._engine, self._handlers):
            return
        self._engine, self._handlers = engine, listed
        self._listed.set()
        self._settled.clear()
        self._changed.set()

    def reported(self, handlers: Iterable[NodeRuntimeHandler]) -> tuple[NodeRuntimeHandler, ...]:
        """Return those of an engine's handlers that work, without features that probes disproved.

        The default handler has the empty name; it is left out where it is known to be broken.
        """
        defaults = {
            state.handler.name for state in self._states.values() if state.handler.is_default
        }
        return tuple(
            without_disproved(handler, self._states.get(handler.name or next(iter(defaults), "")))
            for handler in handlers
            if self._is_reported(handler.name, defaults)
        )

    def _is_reported(self, name: str, defaults: set[str]) -> bool:
        if name:
            state = self._states.get(name)
            if state is None or state.working is Working.PENDING:
                return self._lists_unproven
            return state.is_working
        return not any(self._states[default].working is Working.NO for default in defaults)

    async def run(self) -> None:
        """Probe handlers until cancelled."""
        backoff = Backoff(first_s=_ENGINE_RETRY_S, limit_s=_ENGINE_RETRY_LIMIT_S)
        is_clean = False
        with Inotify() as inotify:
            watching = asyncio.ensure_future(self._follow_files(inotify))
            try:
                while True:
                    try:
                        if not is_clean:
                            # What was probed before does not wait for what must be removed.
                            await self._identify()
                            left = await self._carrier.clean()
                            is_clean = True
                            if left:
                                log.info("probes of an earlier process removed", pods=left)
                        await self._round(inotify)
                        backoff.reset()
                    except CarrierError as error:
                        log.warning("handlers cannot be probed yet", reason=error)
                        await sleep_unless_set(self._clock, backoff.next_s(), self._changed)
                        continue
                    await sleep_unless_set(self._clock, self._next_retry_s(), self._changed)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _round(self, inotify: Inotify) -> None:
        """Bring the states up to date. Raises CarrierError."""
        while True:
            self._changed.clear()
            for directory in {
                path.parent for handler in self._handlers for path in _files(handler)
            }:
                inotify.watch(directory)
            await self._identify()
            await self._probe_plain()
            if self._changed.is_set():
                continue
            self._settled.set()
            if not await self._probe_features():
                return

    async def _identify(self) -> None:
        """Compute fingerprints, and take over what the cache has for new ones."""
        engine, handlers = self._engine, self._handlers
        remembered = self._digests.remembered
        states = {}
        for handler in handlers:
            digests = [await asyncio.to_thread(self._digests.of, path) for path in handler.programs]
            print_ = fingerprint(
                definition=handler.definition,
                programs=digests,
                engine=engine,
                kernel=self._host.kernel,
                boot_facts=_boot_facts(self._host),
            )
            before = self._states.get(handler.name)
            if before is not None and before.fingerprint == print_:
                states[handler.name] = msgspec.structs.replace(before, handler=handler)
                continue
            self._retries.pop(handler.name, None)
            probed = await asyncio.to_thread(self._cache.load, print_)
            states[handler.name] = HandlerState(
                handler=handler,
                engine=engine,
                fingerprint=print_,
                digest=f"sha256:{digests[0]}" if digests and digests[0] else "",
                working=Working.YES if probed else Working.PENDING,
                probed=probed,
            )
        if self._digests.remembered != remembered:
            await asyncio.to_thread(self._cache.store_digests, self._digests)
        is_first = bool(engine) and not self._is_listed
        self._is_listed = self._is_listed or bool(engine)
        self._replace(states, is_news=is_first)

    async def _probe_plain(self) -> None:
        """Run the plain probe of each handler that has no verdict, or whose retry is due."""
        slots = asyncio.Semaphore(_AT_ONCE)
        now_s = self._clock.monotonic()
        due: dict[str, list[HandlerState]] = {}
        for state in self._states.values():
            if state.working is Working.PENDING or (
                state.working is Working.NO and self._retries[state.handler.name][1] <= now_s
            ):
                # Handlers that are the same under two names are probed once.
                due.setdefault(state.fingerprint, []).append(state)

        async def probe(states: list[HandlerState]) -> None:
            async with slots:
                result = await self._plain(states[0])
            await self._note_plain([state.handler.name for state in states], result)

        tasks = [asyncio.ensure_future(probe(states)) for states in due.values()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _note_plain(self, names: list[str], result: ProbeResult) -> None:
        evidence = Evidence(self._host, {"plain": result})
        changed = dict(self._states)
        for name in names:
            state = self._states.get(name)
            if state is None:
                continue
            if is_working(result):
                self._retries.pop(name, None)
                changed[name] = msgspec.structs.replace(
                    state,
                    working=Working.YES,
                    reason="",
                    remedy="",
                    probed=self._probed(state, evidence, ()),
                )
                log.info("handler works", handler=name, start_s=round(result.start_s, 2))
                continue
            backoff, _ = self._retries.get(name) or (
                Backoff(first_s=_RETRY_S, limit_s=_RETRY_LIMIT_S),
                0.0,
            )
            self._retries[name] = backoff, self._clock.monotonic() + backoff.next_s()
            reason, remedy = failure_of(state.handler, result)
            changed[name] = msgspec.structs.replace(
                state, working=Working.NO, reason=reason, remedy=remedy, probed=None
            )
            log.warning("handler does not work", handler=name, reason=reason)
        self._replace(changed)

    async def _probe_features(self) -> bool:
        """Probe the features of one handler that lacks some; return whether there was one.

        Those that an earlier process could not find are probed once more, the others stay.

        Stops where the handlers change meanwhile. Raises CarrierError.
        """
        state = next(filter(self._wants_features, self._states.values()), None)
        if state is None:
            return False
        name, before = state.handler.name, state.probed
        missing = before.passing if before is not None and before.features else tuple(FEATURES)
        probing = asyncio.ensure_future(self._suite(name, probes_of(missing)))
        changing = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((probing, changing), return_when=asyncio.FIRST_COMPLETED)
            if not probing.done():
                return True
            evidence = probing.result()
        finally:
            probing.cancel()
            changing.cancel()
            await asyncio.gather(probing, changing, return_exceptions=True)
        self._tried.add(state.fingerprint)
        found = {name: finding for name, finding in findings(evidence).items() if name in missing}
        probed = self._probed(state, evidence, profile_features(found), before)
        passing = tuple(name for name, finding in found.items() if finding.is_passing)
        probed = msgspec.structs.replace(probed, passing=passing)
        await asyncio.to_thread(self._cache.store, state.fingerprint, probed)
        changed = dict(self._states)
        for other in self._states.values():
            if other.fingerprint == state.fingerprint and other.is_working:
                changed[other.handler.name] = msgspec.structs.replace(other, probed=probed)
        log.info("features of a handler probed", handler=name)
        self._replace(changed)
        return True

    def _wants_features(self, state: HandlerState) -> bool:
        is_incomplete = state.is_working and bool(state.probed and state.probed.passing)
        return state.lacks_features or (is_incomplete and state.fingerprint not in self._tried)

    async def _plain(self, state: HandlerState) -> ProbeResult:
        deadline_s = max(self._deadline_s, state.handler.start_deadline_s)
        return await run_plain(self._carrier, state.handler.name, self._host, deadline_s=deadline_s)

    async def _suite(self, name: str, probes: Collection[str]) -> Evidence:
        plain = await self._plain(self._states[name])
        return await run_suite(self._carrier, name, self._host, plain, probes)

    def _probed(
        self,
        state: HandlerState,
        evidence: Evidence,
        features: tuple[ProfileFeature, ...],
        before: ProbedHandler | None = None,
    ) -> ProbedHandler:
        """Return the present results, beside the features and records of before."""
        kept = before if before is not None and before.features and features else ProbedHandler()
        newer = {feature.name: feature for feature in features}
        older = {feature.name: feature for feature in kept.features}
        level = isolation_of(evidence.output("plain"), self._host)
        return ProbedHandler(
            kernel=evidence.kernel,
            isolation=level.label if level else "",
            features=tuple({**older, **newer}.values()),
            probed_at=format_time(self._clock.now()),
            handler=state.handler.name,
            program=state.handler.program.path,
            digest=state.digest,
            probes=dict(kept.probes)
            | {
                name: ProbeRecord(
                    result.outcome.value,
                    result.exit_code,
                    result.error,
                    result.output[:_OUTPUT_LIMIT],
                )
                for name, result in evidence.results.items()
            },
        )

    async def _follow_files(self, inotify: Inotify) -> None:
        """Start a round when a handler's file or program may have changed."""
        while True:
            changes = await inotify.changes()
            files = {path for handler in self._handlers for path in _files(handler)}
            if any(
                change.is_uncertain or change.directory / change.name in files for change in changes
            ):
                await self._clock.sleep(_QUIET_S)
                self._changed.set()

    def _replace(self, states: dict[str, HandlerState], *, is_news: bool = False) -> None:
        """Take over states. Listeners are called if they differ, or for `is_news`."""
        if states == self._states and not is_news:
            return
        self._states = states
        for listener in self._listeners:
            listener()

    def _next_retry_s(self) -> float:
        now_s = self._clock.monotonic()
        due = (moment_s for name, (_, moment_s) in self._retries.items() if name in self._states)
        return max(0.0, min(due, default=now_s + _FOREVER_S) - now_s)


def is_working(result: ProbeResult) -> bool:
    """Return whether the plain probe shows that a handler works."""
    return result.is_success


def failure_of(handler: KnownHandler, result: ProbeResult) -> tuple[str, str]:
    """Return why a handler counts as broken, and what to do."""
    where = f"correct {handler.file} or " if handler.file else "correct its configuration or "
    remedy = f"{where}its program: it is tried again at once"
    match result.outcome:
        case Outcome.REFUSED:
            return stable_text(result.error), remedy
        case Outcome.CUT_OFF:
            return f"a probe container hangs: {stable_text(result.error)}", remedy
        case Outcome.ENDED:
            printed = f": {stable_text(result.output)}" if result.output.strip() else ""
            return f"a probe container ended with status {result.exit_code}{printed}", remedy
    return stable_text(result.error), remedy


def without_disproved(
    handler: NodeRuntimeHandler, state: HandlerState | None
) -> NodeRuntimeHandler:
    """Return an engine's handler without those features that its probes disproved."""
    if state is None or state.probed is None or handler.features is None:
        return handler
    disproved = {feature.name for feature in state.probed.features if feature.state == UNSUPPORTED}
    features = handler.features
    return NodeRuntimeHandler(
        name=handler.name,
        features=NodeRuntimeHandlerFeatures(
            recursive_read_only_mounts=bool(features.recursive_read_only_mounts)
            and "recursive-read-only-mounts" not in disproved,
            user_namespaces=bool(features.user_namespaces) and "user-namespaces" not in disproved,
        ),
    )


def _files(handler: KnownHandler) -> tuple[Path, ...]:
    return handler.programs


def _boot_facts(host: HostFacts) -> str:
    """Return the facts on which verdicts depend beside the kernel's version."""
    facts = (host.security_modules, host.devices, host.shares_mounts, host.cpu_count)
    return msgspec.json.encode(facts).decode()
