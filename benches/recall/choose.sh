#!/usr/bin/env bash
# Prints the commits of a repository for `recall`, newest first: choose.sh OWNER/NAME DIR [older|fresh]
#
# Default: the newest 12 commits before 1 September 2026 that are not merges, touch at most 30 files and change 1 to 10
# existing source files. The subject must have three words and not be about dependencies, releases, documentation,
# formatting or CI alone. At most four commits by one author. Nothing else matters.
#
# `older`: the next 24 by the same rule, with authors counted from zero. The weights are tuned on them and judged on the
# others. `fresh`: the newest 20, from repositories that were not used for tuning.
set -euo pipefail
name=$1 dir=$2
wanted=12 each=4
[[ ${3:-} == older ]] && skip=true || skip=false
[[ ${3:-} == fresh ]] && wanted=20

sources='\.(bash|sh|c|h|cc|cpp|cxx|hh|hpp|hxx|cs|go|java|cjs|js|jsx|mjs|php|py|pyi|rb|rs|tsx|cts|mts|ts)$'
idle='^(docs?|chore|ci|build|style|release)(\(|:|!)|^(deps|bump|update .*(dependenc|deps)|merge|revert|release|v?[0-9]+\.[0-9]+)'
idle+='|dependabot|renovate|\bdeps\b|\bbump\b|\btypos?\b|changelog|clippy|readme|lint|github action|start version|release version'

declare -A seen=()
count=0
while IFS=$'\t' read -r hash author subject; do
  words=$(sed -E 's/\(#[0-9]+\)//' <<<"$subject" | wc -w)
  if ((words < 3)) || grep -Eiq "$idle" <<<"$subject" || ((${seen[$author]:-0} >= each)); then
    continue
  fi
  changed=$(git -C "$dir" diff-tree -r --no-renames --name-status --no-commit-id "$hash")
  before=$(grep -E '^[MD]' <<<"$changed" | cut -f2 | grep -Ec "$sources" || true)
  if (($(wc -l <<<"$changed") > 30 || before < 1 || before > 10)); then
    continue
  fi
  seen[$author]=$((${seen[$author]:-0} + 1))
  $skip || echo "$name $hash"
  if ((++count == wanted)); then
    $skip || break
    skip=false wanted=24 count=0 seen=()
  fi
done < <(git -C "$dir" log --no-merges --before=2026-09-01 -4000 --format='%H%x09%ae%x09%s')
