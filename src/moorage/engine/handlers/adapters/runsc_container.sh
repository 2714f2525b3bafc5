#!/bin/sh
# Stands between conmon and gVisor for a container of a pod.
#
# conmon waits for a process of its own and owns the streams that it gave to `create`. A gVisor
# container has neither: its process is the pod's sandbox, and its streams are those of `start`.
# So this makes one: it holds the streams, starts the container on request at the gate,
# says how that went, and ends with the container and its code.
#
#   gate    a word is written here: "go" starts, anything else gives up
#   answer  the status of `start`
#
# Called by conmon: create --bundle DIR --pid-file FILE [--console-socket FILE] ID

runsc() { @COMMAND@ "$@"; }

# Unless the sandbox has the network of its caller, gVisor gives the streams of `start` to user 65534.
# A container without input has the host's /dev/null, which must stay root's: it gets an
# empty pipe instead.
start() {
	if [ -c /proc/self/fd/3 ]; then
		: | runsc --log "$bundle/start.log" --log-format json start "$id"
	else
		runsc --log "$bundle/start.log" --log-format json start "$id" <&3
	fi
}

exec 3<&0
previous=
for word do
	case $previous in
	--bundle) bundle=$word ;;
	--pid-file) pid_file=$word ;;
	esac
	previous=$word
done
id=$word

mkfifo "$bundle/gate" "$bundle/answer" || exit 1
# The streams stay with us: conmon waits until every copy of them is closed.
runsc "$@" </dev/null || exit $?

(
	# Opened read-write, so that open(2) does not block until the other end is open.
	read -r word <>"$bundle/gate"
	[ "$word" = go ] || exit 137
	start
	status=$?
	echo "$status" 1<>"$bundle/answer"
	[ "$status" = 0 ] || exit 128
	exec 3<&- </dev/null >/dev/null 2>&1
	code=$(runsc wait "$id" | sed -n 's/.*"exitStatus": *\([0-9]*\).*/\1/p')
	exit "${code:-137}"
) <&3 &
echo $! >"$pid_file"
