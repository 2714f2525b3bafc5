"""Services: which endpoints a connection to a Service may get, and the rules that choose one."""
