#!/bin/sh
# Stands between conmon and a runtime's `create` for a container with a user namespace.
#
# crun gives its standard streams to root of the user namespace. conmon's are the host's /dev/null
# where the container has no input, and with a terminal; it must stay root's. The runtime gets an
# empty pipe for input and conmon's error pipe for output instead.
#
# Called by conmon: OPTIONS create --bundle DIR --pid-file FILE [--console-socket FILE] ID

[ -c /proc/self/fd/1 ] && exec 1>&2
if [ -c /proc/self/fd/0 ]; then
	: | @COMMAND@ "$@"
else
	exec @COMMAND@ "$@"
fi
