#!/bin/sh
# Stands in for the Claude program: counts its calls, prints what a story left for it, and fails.
[ "$1" = --version ] && { echo "2.1.329 (Claude Code)"; exit; }
cat > /dev/null
echo called >> "$CLAUDE_CONFIG_DIR/calls"
cat "$CLAUDE_CONFIG_DIR/says"
exit 1
