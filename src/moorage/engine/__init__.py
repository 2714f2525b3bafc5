"""The container engine: a CRI v1 server that drives runtime handlers directly."""
