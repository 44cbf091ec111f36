#!/bin/sh
# Stands in for the Claude program: begins to answer, and dies.
[ "$1" = --version ] && { echo "2.1.329 (Claude Code)"; exit; }
cat > /dev/null
echo '{"type":"system","subtype":"init","model":"claude-opus-5-5"}'
echo '{"type":"assistant","message":{"id":"msg_1","model":"claude-opus-5-5","content":[{"type":"text","text":"# 1"}],"usage":{"input_tokens":900,"output_tokens":7}}}'
echo 'out of memory in some@place.example' >&2
kill -9 $$
