#!/bin/sh
# Fetches the libraries that the report inlines, at the versions named here. Needs npm and a network; run it to renew them,
# then run the tests of the report and commit what changed.
set -eu
cd "$(dirname "$0")"
UPLOT=1.6.32

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" "uplot@$UPLOT" > /dev/null
tar -xzf "$work/uplot-$UPLOT.tgz" -C "$work"
mkdir -p uplot
cp "$work/package/dist/uPlot.iife.min.js" "$work/package/dist/uPlot.min.css" "$work/package/LICENSE" uplot/
printf 'uPlot %s, MIT licence, https://github.com/leeoniya/uPlot\n' "$UPLOT" > uplot/VERSION
