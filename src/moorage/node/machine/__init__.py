"""Host and engine: facts, health, and the Node object and lease that report them."""
