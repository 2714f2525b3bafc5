"""Node agent: runs the pods bound to its node, under the handlers of their RuntimeClasses.

The entry point is `agent.run_node`. It is not imported here: commands and the engine import the
agent's paths and labels, without its dependencies.
"""
