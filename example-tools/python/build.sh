#!/bin/sh
# Builds the component: build.sh [OUTPUT [WORK]]. All that is installed or written on the way goes
# into the folder WORK, which a later build uses again.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
output=${1:-tables.wasm}
work=${2:-$here/.work}
case $output in /*) ;; *) output=$PWD/$output ;; esac

python3 -c 'import ensurepip, venv' 2>/dev/null || {
    echo "build.sh: building a tool in Python needs \`python3\` 3.10 or newer with venv and pip, and one of them is missing" >&2
    exit 1
}

mkdir -p -- "$work"
work=$(CDPATH= cd -- "$work" && pwd)

cmp -s -- "$here/requirements.txt" "$work/installed" || {
    rm -rf -- "$work/installed" "$work/venv"
    python3 -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp -- "$here/requirements.txt" "$work/installed"
}

# A copy, since the interpreter leaves a __pycache__ beside what it loads.
rm -rf -- "$work/source"
mkdir -- "$work/source"
cp -- "$here/app.py" "$work/source"
VIRTUAL_ENV=$work/venv "$work/venv/bin/componentize-py" --quiet --wit-path "$here/wit" --world tables \
    componentize --python-path "$work/source" --output "$output.part" app
mv -- "$output.part" "$output"
