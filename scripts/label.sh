#!/usr/bin/env bash
# Serve trained bundles in MONAI Label, for 3D Slicer, OHIF or any other client of it.
#
#     scripts/label.sh STUDIES BUNDLE... [options]
#     scripts/label.sh --setup             only make or update MONAI Label's environment
#
# STUDIES      a folder of images, a site's YAML, or the URL of a DICOMweb server
# BUNDLE       folder of a bundle with weights, as made by fedmed export
# --host H     address to listen on; default 127.0.0.1, this machine only
# --port P     default 8000
# --name NAME  another name by which clients call this machine, such as that of a proxy; may be given several times
# --token FILE clients must bring the secret in this file, which is made if it is missing
# --max-upload MB  an image that a client sends has at most so many megabytes; default 1024
# --allow-delete   clients may delete labels and the images that they sent
# --work DIR   where the server's files and corrected labels are kept; default below $FEDMED_HOME/label
# --device D   cpu, cuda or cuda:N; default: a GPU if there is one
# --trust D    let the bundle of this digest run its own code (repeatable); without it none does, and those that would
#              are refused with their digest
# --all        of a site, the images of all lists, not only the unlabelled ones
# --stock      MONAI Label's own app in place of FedMed's: 3D segmentation only
# --verbose    show MONAI Label's log here; else it goes to a file
#
# MONAI Label needs older packages than FedMed: it gets a virtual environment of its own, made when it is missing, in
# $FEDMED_LABEL_ENV or ~/.cache/fedmed/label-env, from its lock file in locks/. Set PYTHON to choose its interpreter (3.11
# or 3.12), FEDMED_LOCK=none to do without hashes.
set -euo pipefail
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place=${FEDMED_LABEL_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/fedmed/label-env}
[[ $place == /* ]] || place=$PWD/$place
python=$place/bin/python
stamp=$place/fedmed-stamp
wanted=$checkout/monailabel_app/environment
source "$checkout/locks/install.sh"

say() { printf 'label: %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$@" >&2
    exit 2
}

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3; do
        if fits "$candidate"; then
            command -v "$candidate"
            return
        fi
        [[ -z ${PYTHON:-} ]] || break # PYTHON was chosen by the user and is not replaced
    done
    local asked=${PYTHON:-python3} found="not there"
    ! command -v "$asked" >/dev/null || found=$("$asked" --version 2>&1 | head -n 1)
    die "MONAI Label needs Python 3.11 or 3.12; '$asked' is $found." \
        "Install it (Debian, Ubuntu: sudo apt install python3.11 python3.11-venv) or set PYTHON=/path/to/python3.11."
}

# What the environment was made from. Its scripts hold absolute paths: a moved one is made anew.
fingerprint() {
    "$python" - "$place" "$wanted"/* "$(lock_for "$python" label-)" "$locks/label-source.txt" <<'PY'
import hashlib, os, sys
digest = hashlib.sha256(f"{sys.version} {sys.argv[1]}".encode())
for path in filter(os.path.isfile, sys.argv[2:]):
    digest.update(open(path, "rb").read())
print(digest.hexdigest(), sys.argv[1])
PY
}

usable() { # a working interpreter, pip, and made at this place
    fits "$python" && [[ -x $place/bin/pip ]] &&
        { [[ ! -f $stamp ]] || [[ $(cut -d ' ' -f 2- "$stamp") == "$place" ]]; }
}

make_venv() {
    local base
    base=$(find_python)
    if ! "$base" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        die "$base cannot make virtual environments: the package python3-venv is missing." \
            "Install it (Debian, Ubuntu: sudo apt install python3-venv) and run this again."
    fi
    if [[ -e $place && ! -f $place/pyvenv.cfg && -n $(ls -A "$place" 2>/dev/null || echo file) ]]; then
        die "$place exists and is not a virtual environment. Move it away or set FEDMED_LABEL_ENV."
    fi
    say "making $place with $("$base" --version) ($base)"
    "$base" -m venv --clear "$place" || die "$base could not make $place; the reason is above."
}

install() { # what is already there is not worth a line
    local compile=--no-compile                                 # see setup.sh
    [[ -z ${PYTHONDONTWRITEBYTECODE:-} ]] || compile=--compile # else every start would compile everything anew
    local lock pip=("$compile" --quiet --disable-pip-version-check)
    lock=$(lock_for "$python" label-)
    if [[ -n $lock ]]; then
        install_lock "$python" "$lock" "${pip[@]}" &&
            "$python" -m pip install "${pip[@]}" --require-hashes --no-deps --no-build-isolation -r "$locks/label-source.txt"
    else
        say "no lock file for this platform, or FEDMED_LOCK=none: what requirements.txt brings along is not pinned"
        "$python" -m pip install "${pip[@]}" -r "$wanted/requirements.txt" -r "$wanted/from_source.txt" &&
            "$python" -m pip install "${pip[@]}" --no-deps -r "$wanted/without_dependencies.txt"
    fi >&2 9>&- ||
        die "pip failed; the reason is above. Check the network or the index (pip config list) and run this again." \
            "If a hash differs, an index answered with another file than was tested: see docs/deployment.md."
}

# torchvision's default wheel is a CUDA build: beside a CPU build of torch it needs its operators declared.
fit_torchvision() {
    local site
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    rm -f "$site"/fedmed_torchvision.pth "$site"/torchvision_operators.py
    ! "$python" -c 'import torchvision' >/dev/null 2>&1 || return 0
    if "$python" -c 'import sys, torch; sys.exit(bool(torch.version.cuda or torch.version.hip))'; then
        say "torch is a CPU build and torchvision is not: declaring its operators"
        cp "$wanted/torchvision_operators.py" "$site"
        echo 'import torchvision_operators; torchvision_operators.install()' >"$site/fedmed_torchvision.pth"
    fi
    "$python" -c 'import torchvision' >&2 || die "torchvision does not fit torch; the reason is above."
}

set_up() {
    mkdir -p "$(dirname "$place")" || die "cannot make $(dirname "$place"); set FEDMED_LABEL_ENV to a folder of yours."
    if command -v flock >/dev/null; then # two set-ups at a time would spoil each other's work
        exec 9>"$place.lock"
        flock --nonblock 9 || { say "waiting for another set-up of $place" && flock 9; }
    fi
    if usable; then
        [[ ! -f $stamp || $(<"$stamp") != "$(fingerprint)" ]] || return 0
        say "updating $place"
    else
        make_venv
    fi
    rm -f "$stamp"
    say "installing MONAI Label (the first time some minutes and about 2.7 GB)"
    install
    fit_torchvision
    fingerprint >"$stamp"
}

case ${1:-} in
"" | -h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    [[ -n ${1:-} ]] && exit 0 || exit 2
    ;;
esac
set_up
if [[ $1 == --setup ]]; then
    say "$place is up to date"
    exit 0
fi
exec 9>&- # the lock is for the set-up, not for as long as the server runs
export PYTHONPATH=$checkout/custom:$checkout/monailabel_app
exec "$python" "$checkout/monailabel_app/serve.py" "$@"
