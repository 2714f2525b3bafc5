"""Command line `moor`: parses options, calls the cluster, prints results."""
