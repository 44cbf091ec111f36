#!/bin/sh
# Stands in for the Claude program: says nothing as long as somebody holds its gate, and dies.
[ "$1" = --version ] && { echo "2.1.329 (Claude Code)"; exit; }
cat > /dev/null
[ -p "$CLAUDE_CONFIG_DIR/gate" ] && cat "$CLAUDE_CONFIG_DIR/gate"
kill -9 $$
