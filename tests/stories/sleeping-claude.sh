#!/bin/sh
# Stands in for a Claude program that never answers: it and a child in a session of its own wait to be killed. Their numbers are
# left in its configuration directory.
[ "$1" = --version ] && { echo "2.1.329 (Claude Code)"; exit; }
trap '' TERM
setsid sleep 300 &
echo "$$ $!" > "$CLAUDE_CONFIG_DIR/sleeping.new"
mv "$CLAUDE_CONFIG_DIR/sleeping.new" "$CLAUDE_CONFIG_DIR/sleeping"
while :; do sleep 300; done
