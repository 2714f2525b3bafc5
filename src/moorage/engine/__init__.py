"""Container engine: a CRI v1 server that drives runtime handlers directly.

    async with engine.running(EngineOptions(...)) as running: ...

Without pause process, shim or daemon between a kubelet and a runtime: namespaces are pinned, each
container has a monitor (conmon) that outlives the engine, and a handler is a file. Decision:
docs/decisions/021-an-engine-of-our-own.md.

Nothing is imported here: commands that only look at a host need no engine.
"""
