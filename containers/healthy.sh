#!/bin/sh
# Tell by the exit status whether a participant is in touch: a server listens at its port, a site is connected.
#
# A site's connection may lead to a proxy, so any to another machine counts. It reads the kernel's table, since the
# image has no tool for that and a Python process every half minute costs more than the answer is worth.
set -eu
kit=${FEDMED_KIT:-/kit}
port=$(sed -n 's/.*"target": *"[^"]*:\([0-9]*\)".*/\1/p' "$kit"/startup/fed_server.json 2>/dev/null | head -n 1)
own='^(0100007F|0000000000000000FFFF00000100007F|00000000000000000000000001000000):' # 127.0.0.1, twice, and ::1
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v own="$own" -v port="$(printf %04X "${port:-0}")" -v server="${port:+yes}" '
    server && $4 == "0A" && $2 ~ ":" port "$" { found = 1 }
    !server && $4 == "01" && $3 !~ own { found = 1 }
    END { exit !found }'
