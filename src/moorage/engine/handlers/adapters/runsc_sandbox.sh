#!/bin/sh
# Stands between conmon and gVisor for the sandbox of a pod.
#
# Unless the sandbox has the network of its caller (`network = "host"`), gVisor gives its standard
# input to the user nobody, under whom it runs. conmon's is the host's /dev/null, which that user
# could then close to all others. So this gives it an empty pipe.
#
# Called by conmon: create --bundle DIR --pid-file FILE [--console-socket FILE] ID

: | @COMMAND@ "$@"
