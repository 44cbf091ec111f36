#!/usr/bin/env bash
# shellcheck disable=SC2034
# Installs things. More here.

set -euo pipefail
source ./lib.sh
. "$DIR/other.sh"

readonly VERSION="1.0"
export PATH_TO=/x OTHER=y
declare -r LIST=(a b
  c)
lower=1
UPPER=2

# Says hello.
# To everyone.
hello() {
  local x=1
  cat <<EOF
fake() {
  class Fake
}
EOF
}

function with-dash {
  source inner.sh
}

function both() (
  echo sub
)

if [ -n "$X" ]; then
  conditional() { :; }
else
  otherwise() { :; }
fi

{
  grouped() { :; }
}

case $1 in
  a) in_case() { :; } ;;
esac

alias ll='ls -l'
main "$@"
