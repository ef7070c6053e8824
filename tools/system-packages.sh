#!/bin/sh
# Bring the system packages that hold the programs given as PROGRAM=PACKAGE; where this user may not, say what to run.
set -eu
missing=""
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 || missing="$missing ${pair#*=}"
done
python3 -c "import ensurepip" >/dev/null 2>&1 || missing="$missing python3-venv"
[ -z "$missing" ] && exit 0
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then as_root="sudo -n"; else
        echo "Please install what is missing first: sudo apt-get install$missing" >&2
        exit 3
    fi
fi
echo "installing$missing"
$as_root apt-get -o DPkg::Lock::Timeout=300 update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends $missing >/dev/null
