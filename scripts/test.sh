#!/usr/bin/env bash
# Set up .venv, then run the tests that are not marked slow.
#
#     scripts/test.sh [--all] [arguments of pytest]
#
# --all adds the slow ones. Paths among the arguments are relative to the checkout: scripts/test.sh tests/losses -x
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

selection=(-m "not slow")
what="the tests that are not slow"
arguments=()
for argument in "$@"; do
    case $argument in
    --all) selection=() what="all tests" ;;
    -h | --help)
        sed -n '2,6s/^# \{0,1\}//p' scripts/test.sh
        exit 0
        ;;
    *) arguments+=("$argument") ;;
    esac
done

scripts/setup.sh
# Many threads on tensors as small as a test's only get in each other's way.
cores=$(getconf _NPROCESSORS_ONLN)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores < 4 ? cores : 4))}
echo "test: running $what with $OMP_NUM_THREADS thread(s)"
exec .venv/bin/python -m pytest ${selection[@]+"${selection[@]}"} ${arguments[@]+"${arguments[@]}"}
