#!/usr/bin/env bash
# Set up .venv, then run the tests that are not marked slow.
#
#     scripts/test.sh [--all] [arguments of pytest]
#
# --all adds the slow ones. Paths among the arguments are relative to the checkout: scripts/test.sh tests/losses -x
# Those run in one process; the full suite runs in one more than there are cores, at most four (another number: -n 1).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

selection=(-m "not slow")
what="the tests that are not slow"
arguments=()
all_folders=yes
for argument in "$@"; do
    case $argument in
    --all) selection=() what="all tests" ;;
    -h | --help)
        sed -n '2,7s/^# \{0,1\}//p' scripts/test.sh
        exit 0
        ;;
    *)
        arguments+=("$argument")
        if [[ -e ${argument%%::*} ]]; then all_folders=no; fi
        ;;
    esac
done

scripts/setup.sh --dev
# Many threads on tensors as small as a test's only get in each other's way.
cores=$(getconf _NPROCESSORS_ONLN)
workers=$((cores < 4 ? cores + 1 : 4)) # one more than cores: many tests wait for processes of NVFlare
split=()
if [[ $all_folders == yes ]]; then
    # A file stays in one process, which makes its fixtures; in the files' order, since the longest are not the last.
    split=(-n "$workers" --dist loadfile --no-loadscope-reorder)
    what+=" in $workers processes"
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
unset PYTHONDONTWRITEBYTECODE # else each of the many processes that tests start would compile the package anew
echo "test: running $what with $OMP_NUM_THREADS thread(s)"
exec .venv/bin/python -m pytest ${selection[@]+"${selection[@]}"} ${split[@]+"${split[@]}"} ${arguments[@]+"${arguments[@]}"}
