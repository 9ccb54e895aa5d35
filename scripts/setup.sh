#!/usr/bin/env bash
# Make or update the virtual environment .venv of this checkout, and nothing else.
#
#     scripts/setup.sh [--dev]
#
# Installs the lock file of this platform (locks/: every package by version and hash) and the package in custom/
# (editable); with --dev also what changes of FedMed are tested with, requirements-dev.txt. A stamp in .venv tells whether
# there is anything to do; it is written last, so an interrupted run is done again. Set PYTHON to choose the interpreter
# (3.11 or newer), FEDMED_LOCK=none to do without hashes: requirements.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source locks/install.sh

case ${1:-} in
-h | --help)
    sed -n '2,9s/^# \{0,1\}//p' scripts/setup.sh
    exit 0
    ;;
"" | --dev) ;;
*)
    echo "setup: '$1' is not an option of scripts/setup.sh" >&2
    exit 2
    ;;
esac

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13; do
        if new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
        [[ -z ${PYTHON:-} ]] || break # what was asked for is not replaced by something else
    done
    local wanted=${PYTHON:-python3} found="not there"
    ! command -v "$wanted" >/dev/null || found=$("$wanted" --version 2>&1 | head -n 1)
    die "FedMed needs Python 3.11 or newer; '$wanted' is $found." \
        "Install it (Debian, Ubuntu: sudo apt install python3.11 python3.11-venv) or set PYTHON=/path/to/python3.11."
}

# What .venv, or its part for changes of FedMed, was made from. Scripts in it hold absolute paths: a moved checkout needs
# a new one.
fingerprint() { # files
    .venv/bin/python - "$@" <<'PY'
import hashlib, os, sys
digest = hashlib.sha256(f"{sys.version} {os.getcwd()}".encode())
for path in filter(None, sys.argv[1:]):
    digest.update(open(path, "rb").read())
print(digest.hexdigest(), os.getcwd())
PY
}

fresh() { # stamp, and the files that what it stands for was made from
    [[ -f $1 && $(<"$1") == "$(fingerprint "${@:2}")" ]]
}

made_elsewhere() {
    [[ -f $stamp && $(cut -d ' ' -f 2- "$stamp") != "$PWD" ]]
}

usable() { # a working interpreter, pip, and made at this place
    new_enough .venv/bin/python && [[ -x .venv/bin/pip ]] && ! made_elsewhere
}

make_venv() {
    local python
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        local version
        version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        die "$python cannot make virtual environments: the package python3-venv is missing." \
            "Install it (Debian, Ubuntu: sudo apt install python3-venv, or $version-venv) and run this again."
    fi
    if [[ -L .venv ]] && made_elsewhere; then # to make it anew would empty that of another checkout
        die "$PWD/.venv is a link to the environment of another checkout ($(readlink .venv)). Remove the link and run this again."
    fi
    if [[ -e .venv && ! -f .venv/pyvenv.cfg && -n $(ls -A .venv 2>/dev/null || echo file) ]]; then
        die "$PWD/.venv exists and is not a virtual environment. Move it away and run this again."
    fi
    say "making .venv with $("$python" --version) ($python)"
    "$python" -m venv --clear .venv || die "$python could not make $PWD/.venv; the reason is above."
}

in_short() { # of some 350 lines of pip those that tell how far it is; all are in .venv/pip.log
    awk '/^Collecting / && ++found % 50 == 0 { print "setup: " found " packages found"; fflush() }
        /^Installing collected/ { print "setup: unpacking, a minute or two"; fflush() }
        /^Successfully installed/ { print "setup: " NF - 2 " packages installed" }'
}

stamp=.venv/fedmed-stamp
if command -v flock >/dev/null; then # two set-ups at a time would spoil each other's work
    exec 9<.
    flock --nonblock 9 || { say "waiting for another set-up of this checkout" && flock 9; }
fi

was_there=yes
if ! usable; then
    was_there=
    make_venv
fi
# Python compiles what it imports, once; to compile every file of every package takes a minute, and most are never used.
compile=--no-compile
[[ -z ${PYTHONDONTWRITEBYTECODE:-} ]] || compile=--compile # then Python does not keep what it compiles
pip=("$compile" --disable-pip-version-check --progress-bar off)

pip_install() { .venv/bin/python -m pip install "${pip[@]}" "$@"; }

install() { # lock file or none, requirements that it is made of, and of these of .venv itself: -e .
    if [[ -z $1 ]]; then
        pip_install -r "$2" "${@:3}"
    else
        install_lock .venv/bin/python "$1" "${pip[@]}" && { [[ $# -eq 2 ]] || pip_install --no-deps --no-build-isolation "${@:3}"; }
    fi
}

# Install, unless a stamp says that it is done; return whether there was anything to do.
bring() { # stamp, and as for install
    local files=(requirements.txt pyproject.toml "$3" "$2")
    ! fresh "$1" "${files[@]}" || return 1
    rm -f "$1"
    [[ -z $was_there || $3 != requirements.txt ]] || say "updating .venv"
    [[ -n $2 ]] || say "no lock file for this platform, or FEDMED_LOCK=none: what $3 brings along is not pinned"
    local size=""
    [[ $3 != requirements.txt ]] || size="the first time some minutes and about 3 GB; "
    say "installing $(basename "${2:-$3}") (${size}all that pip says: .venv/pip.log)"
    install "${@:2}" | tee .venv/pip.log | in_short ||
        die "pip failed; the reason is above. Check the network or the index (pip config list) and run this again." \
            "If a hash differs, an index answered with another file than was tested: see docs/deployment.md."
    fingerprint "${files[@]}" >"$1"
}

done=()
! bring "$stamp" "$(lock_for .venv/bin/python "")" requirements.txt -e . || done+=(all)
if [[ ${1:-} == --dev ]]; then
    ! bring "$stamp-dev" "$(lock_for .venv/bin/python dev-)" requirements-dev.txt || done+=(tools)
fi
if [[ ${#done[@]} -gt 0 ]]; then
    say "done: source .venv/bin/activate"
else
    say ".venv is up to date"
fi
