# Install an environment from its lock file; sourced by scripts/setup.sh and scripts/label.sh.
#
# A lock file names every package with its version and the SHA-256 of the wheels that may be installed, so that what
# an index answers with cannot differ from what was tested. locks/dependencies.py writes them.

locks=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Print the lock file of an interpreter's platform; nothing when there is none, or FEDMED_LOCK=none says to do without.
lock_for() { # interpreter, start of the file's name: "" or "label-"
    [[ ${FEDMED_LOCK:-} != none ]] || return 0
    local platform
    platform=$("$1" -c 'import platform, sys
fits = platform.python_version_tuple()[:2] in [("3", "11"), ("3", "12"), ("3", "13")]
print(f"{sys.platform}-{platform.machine()}".lower() if fits else "none")')
    [[ ! -f $locks/$2$platform.txt ]] || printf '%s\n' "$locks/$2$platform.txt"
}

# Install just what the lock files name: --no-deps, since they name everything, and no builds from source.
install_lock() { # interpreter, lock file, further arguments of pip
    local python=$1 lock=${2%.txt}
    shift 2
    locked() { "$python" -m pip install --require-hashes --no-deps --only-binary :all: "${@:2}" -r "$1"; }
    locked "$lock.txt" "$@" || return
    [[ ! -f $lock-torch.txt ]] || install_torch "$python" "$lock-torch.txt" "$@" || return
    # What PyTorch's build for NVIDIA GPUs needs lies in a file of its own: a build for CPUs does without those 3 GB.
    [[ ! -f $lock-cuda.txt ]] || ! has_cuda_torch "$python" || locked "$lock-cuda.txt" "$@"
}

# PyTorch's builds for CPUs and for GPUs are files of one version. Of those whose hashes are locked pip would take the
# one whose hash its index tells, whatever is preferred here: so it fetches as ever, and the file is then held to the lock.
install_torch() { # interpreter, lock file, further arguments of pip
    local python=$1 lock=$2 wanted folder
    shift 2
    wanted=$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' "$lock")
    [[ torch==$("$python" -c 'from importlib import metadata; print(metadata.version("torch").split("+")[0])' 2>/dev/null) != "$wanted" ]] ||
        return 0
    folder=$(mktemp -d)
    "$python" -m pip download --disable-pip-version-check --progress-bar off --no-deps --only-binary :all: -d "$folder" "$wanted" &&
        locked "$lock" --no-index --find-links "$folder" "$@"
    local result=$?
    rm -r "$folder"
    return "$result"
}

has_cuda_torch() { # interpreter
    "$1" -c 'import importlib.util, pathlib, runpy, sys
version = pathlib.Path(importlib.util.find_spec("torch").origin).with_name("version.py")
sys.exit(not runpy.run_path(str(version))["cuda"])'
}
