"""The node agent: runs the pods that name its node, under the handlers their classes name.

`agent.run_node` is the whole of it. It is not imported here: commands and the engine need the
agent's paths and labels, and none of what it runs on.
"""
