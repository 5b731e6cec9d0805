#!/bin/sh
# Prints the packages of some groups of scripts/packages.txt, one a line: scripts/package_names.sh base cpu
# For what runs before there is Python: continuous integration and the containers.
set -eu
list="$(dirname "$0")/packages.txt"
for group in "$@"; do
  grep -q "^$group:" "$list" || { echo "package_names.sh: packages.txt has no group '$group'" >&2; exit 2; }
  sed -n -e 's/#.*//' -e "s/^$group://p" "$list" | tr -s ' ' '\n' | sed '/^$/d'
done
