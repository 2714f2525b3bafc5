"""The command line `moor`: parse, call, print."""
