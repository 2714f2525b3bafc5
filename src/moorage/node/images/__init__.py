"""Images: found on the node or pulled, with whose credentials, and removed when disk runs short."""
