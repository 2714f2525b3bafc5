"""Static pods: manifests of a directory on this node, and their mirrors in the API."""
