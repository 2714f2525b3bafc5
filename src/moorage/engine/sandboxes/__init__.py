"""Pod sandboxes: one module for each RPC of the CRI that acts on a sandbox."""
