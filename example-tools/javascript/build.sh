#!/bin/sh
# Builds the component: build.sh [OUTPUT [WORK]]. All that is installed on the way goes into the
# folder WORK, which a later build uses again.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
output=${1:-words.wasm}
work=${2:-$here/.work}
case $output in /*) ;; *) output=$PWD/$output ;; esac

for program in node npm; do
    command -v "$program" >/dev/null || {
        echo "build.sh: building a tool in JavaScript needs Node.js 20 with npm, and there is no \`$program\`" >&2
        exit 1
    }
done

mkdir -p -- "$work"
work=$(CDPATH= cd -- "$work" && pwd)
cd -- "$work"

cmp -s -- "$here/package-lock.json" installed || {
    rm -f installed
    cp -- "$here/package.json" "$here/package-lock.json" .
    npm ci --loglevel=error --ignore-scripts --no-audit --no-fund >/dev/null
    cp package-lock.json installed
}

rm -rf source
mkdir source
cp -R -- "$here/wit" "$here/words.js" "$here/build.mjs" source
node source/build.mjs "$output"
