"""The engine as the node agent sees it: calls, what runs, and how configurations are built."""
