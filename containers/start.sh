#!/bin/sh
# Run the participant whose kit is mounted at /kit, in the foreground; with arguments, run these instead.
#
# A kit's own startup/start.sh returns at once and leaves a supervisor behind. In a container the engine supervises, so
# this runs what the supervisor would: one process, which writes its log into the kit and to standard output.
set -eu
umask 077
[ $# -eq 0 ] || exec "$@"
kit=${FEDMED_KIT:-/kit}

die() {
    printf 'fedmed: %s\n' "$@" >&2
    exit 78
}

[ -r "$kit" ] && [ -w "$kit" ] ||
    die "user $(id -u) cannot read and write $kit: mount the kit there, after chown -R $(id -u):$(id -g) of its folder"
[ -f "$kit/startup/sub_start.sh" ] ||
    die "$kit holds no kit of a server or a site: mount the folder that provisioning made for this participant"
exec bash "$kit/startup/sub_start.sh" --once
