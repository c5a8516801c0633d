#!/bin/sh
# What people write: SET NX PX, ask again every 0.1 s, compare-and-delete. No renewal,
# so the lease has to outlast the command.
#
# shell.sh URL KEY CMD [ARGS...]

url=$1 key=$2
shift 2
read -r token </proc/sys/kernel/random/uuid
until [ "$(redis-cli -u "$url" SET "$key" "$token" NX PX 600000)" = OK ]; do sleep 0.1; done
"$@"
code=$?
redis-cli -u "$url" EVAL \
    'if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0' \
    1 "$key" "$token" >/dev/null
exit $code
