#!/bin/bash
# All attacks, again and again, in another order and with other random numbers in each round.
#
#   tests/attack/hours.sh --hours N [--seed S] [SUITE...]
#
# Round 1 has the seed S (default: 1), round 2 has S + 1, and so on. SUITE: musterd, job, node, training, token, c10d, http, tls;
# all of them if none is given. The programs are those of build/release/bin, unless MUSTER_BIN and MUSTERD_BIN say otherwise.
# A failure ends it with exit code 1 and names the seed; the same round again: MUSTER_ATTACK_SEED=S python3 tests/attack/SUITE_attack_test.py
set -euo pipefail

usage() {
  sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" >&2
  exit 2
}

hours='' seed=1
while [[ ${1:-} == --* ]]; do
  case $1 in
    --hours) hours=${2:-} ;;
    --seed) seed=${2:-} ;;
    *) usage ;;
  esac
  shift 2 || usage
done
[[ $hours =~ ^[0-9]+(\.[0-9]+)?$ && $seed =~ ^[0-9]+$ ]] || usage
root=$(cd "$(dirname "$0")/../.." && pwd)
suites=("$@")
((${#suites[@]})) || suites=(musterd job node training token c10d http tls)
for suite in "${suites[@]}"; do
  [[ -f $root/tests/attack/${suite}_attack_test.py ]] || usage
done

python=$root/.venv/bin/python
[[ -x $python ]] || python=python3
export MUSTER_BIN=${MUSTER_BIN:-$root/build/release/bin/muster} MUSTERD_BIN=${MUSTERD_BIN:-$root/build/release/bin/musterd}
export PYTHONDONTWRITEBYTECODE=1
log=$(mktemp "${TMPDIR:-/tmp}/muster-attack-hours.XXXXXX")
trap 'rm -f "$log"' EXIT
end=$(awk -v now="$SECONDS" -v hours="$hours" 'BEGIN { print int(now + hours * 3600) }')
for ((rounds = 0; SECONDS < end; ++rounds)); do
  export MUSTER_ATTACK_SEED=$((seed + rounds))
  while read -r suite; do
    begin=$SECONDS
    if ! "${MUSTER_TORCH_PYTHON:-$python}" "$root/tests/attack/${suite}_attack_test.py" >"$log" 2>&1 </dev/null; then
      cat "$log"
      echo "hours.sh: $suite failed: MUSTER_ATTACK_SEED=$MUSTER_ATTACK_SEED" >&2
      exit 1
    fi
    echo "seed $MUSTER_ATTACK_SEED: $suite: $(grep -oE '^Ran [0-9]+ tests' "$log") in $((SECONDS - begin)) s$(
      grep -oE '\(skipped=[0-9]+\)' "$log" | sed 's/^/ /')"
  done < <(printf '%s\n' "${suites[@]}" | shuf --random-source=<(yes "$MUSTER_ATTACK_SEED"))
done
echo "hours.sh: $rounds rounds, no failure; the next seed is $((seed + rounds))"
