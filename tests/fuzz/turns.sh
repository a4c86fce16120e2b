#!/bin/bash
# Fuzzes all decoders in turns, and says how much of their code was reached.
#
#   tests/fuzz/turns.sh SECONDS [TARGET...]     one turn: each target for so long
#   tests/fuzz/turns.sh --hours HOURS [TARGET...]   turns of 10 minutes until the time is over
#
# Needs clang with libFuzzer (Debian: clang-19 and libclang-rt-19-dev); without it, says so and exits with 77. Corpora are
# tests/fuzz/corpora/TARGET, dictionaries tests/fuzz/dictionaries/TARGET. What was found to reach
# more stays in build/fuzz/found/TARGET for the next time. A finding ends the turns: its input is
# build/fuzz/TARGET-crash-*, and belongs into the corpus once it is fixed.
set -euo pipefail

wire="pickle/utf8.cc rendezvous/wire/native_json.cc rendezvous/wire/printable_text.cc"
pickle="pickle/reader.cc pickle/writer.cc pickle/utf8.cc"
declare -A sources=(
  [native_message]="$wire rendezvous/wire/base64.cc rendezvous/wire/native_codec.cc rendezvous/wire/native_report.cc
    rendezvous/wire/token_proof.cc"
  [http]="rendezvous/http/http_access.cc rendezvous/http/http_route.cc rendezvous/wire/http_key.cc
    rendezvous/wire/percent.cc musterctl/http_text.cc"
  [worker_channel]="agent/core/worker_lines.cc worker_sdk/src/notice_lines.cc"
  [config_json]="$wire rendezvous/wire/config_json.cc"
  [etcd_answers]="$wire rendezvous/wire/base64.cc rendezvous/wire/etcd_json.cc rendezvous/wire/host_record.cc
    rendezvous/wire/percent.cc rendezvous/wire/native_codec.cc rendezvous/wire/native_report.cc
    rendezvous/wire/run_record_codec.cc rendezvous/etcd/etcd_records.cc"
  [addresses]="rendezvous/etcd/etcd_address.cc rendezvous/wire/base64.cc rendezvous/wire/percent.cc
    rendezvous/wire/run_tokens.cc"
  [worker_files]="agent/core/error_file.cc agent/core/rank_messages.cc agent/core/ranks.cc agent/core/timer_table.cc
    rendezvous/core/round_ranks.cc"
  [run_record]="$wire rendezvous/wire/base64.cc rendezvous/wire/native_codec.cc rendezvous/wire/native_report.cc
    rendezvous/wire/run_record_codec.cc"
  [state_codec]="$pickle rendezvous/wire/base64.cc rendezvous/wire/python_time.cc rendezvous/wire/state_decoder.cc
    rendezvous/wire/state_encoder.cc rendezvous/wire/state_rules.cc rendezvous/core/rendezvous_state.cc"
  [store_codec]="rendezvous/core/shared_bytes.cc rendezvous/core/store_table.cc rendezvous/core/store_waits.cc
    rendezvous/wire/c10d_codec.cc rendezvous/wire/reply_queue.cc"
  [tensor_pickle]="pickle/reader.cc pickle/utf8.cc worker_sdk/src/pickle_rules.cc"
)
order=(native_message http worker_channel worker_files config_json etcd_answers addresses run_record state_codec store_codec
  tensor_pickle)

usage() {
  sed -n '2,12s/^# \?//p' "$0" >&2
  exit 2
}

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/fuzz
hours=0
if [[ ${1:-} == --hours ]]; then
  hours=${2:-} turn=600
  shift
else
  turn=${1:-}
fi
[[ $turn =~ ^[0-9]+$ && $hours =~ ^[0-9]+$ ]] || usage
shift
targets=("$@")
((${#targets[@]})) || targets=("${order[@]}")
for target in "${targets[@]}"; do
  [[ -n ${sources[$target]:-} ]] || { echo "turns.sh: no target $target; there are: ${order[*]}" >&2; exit 2; }
done

clang=
for name in clang++ clang++-19 clang++-16 clang++-14; do
  if command -v "$name" >/dev/null; then clang=$name; break; fi
done
mkdir -p "$build"
if [[ -z $clang ]] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
  "$clang" -fsanitize=fuzzer -x c++ - -o "$build/probe" 2>/dev/null; then
  echo "SKIPPED: no clang with libFuzzer (apt-get install clang-19 libclang-rt-19-dev)"
  exit 77
fi
cd "$root"
[[ -x /usr/bin/llvm-symbolizer-19 ]] && export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19

compiler=("$clang" -std=c++20 -g1 -O1 "-fsanitize=fuzzer,address,undefined" -fno-sanitize-recover=all)
command -v ccache >/dev/null && cached=(ccache) || cached=()
mkdir -p "$build/objects"
declare -A compiled=()

# compile SOURCE: once for all targets. Leaves its name in $object.
compile() {
  object=$build/objects/${1//\//_}.o
  [[ -n ${compiled[$1]:-} ]] && return
  "${cached[@]}" "${compiler[@]}" -I. -DMUSTER_LIBFUZZER -DMUSTER_VERSION='"fuzz"' -c "$1" -o "$object"
  compiled[$1]=yes
}

for target in "${targets[@]}"; do
  objects=()
  for source in "tests/fuzz/${target}_fuzz.cc" ${sources[$target]}; do
    compile "$source"
    objects+=("$object")
  done
  "${compiler[@]}" "${objects[@]}" -o "$build/${target}_fuzz"
done

# run_target TARGET OPTION...: over its corpora.
run_target() {
  local target=$1 folders=("$build/found/$1") words=()
  shift
  mkdir -p "${folders[0]}"
  [[ -d tests/fuzz/corpora/$target ]] && folders+=("tests/fuzz/corpora/$target")
  [[ $target == store_codec ]] && folders+=(tests/fuzz/corpus)
  [[ -f tests/fuzz/dictionaries/$target ]] && words=("-dict=tests/fuzz/dictionaries/$target")
  "$build/${target}_fuzz" "${folders[@]}" "${words[@]}" -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
    -artifact_prefix="$build/$target-" "$@" 2>&1
}

# One turn is the same each time, as far as its time goes; the hours look for what is new.
seed=()
((hours)) || seed=(-seed=1)
end=$((SECONDS + hours * 3600))
while :; do
  for target in "${targets[@]}"; do
    if ! run_target "$target" -max_total_time="$turn" "${seed[@]}" -print_final_stats=1 >"$build/$target.log"; then
      cat "$build/$target.log"
      echo "turns.sh: $target: a finding: $(grep -o 'Test unit written to .*' "$build/$target.log" | tail -n 1)" >&2
      exit 1
    fi
    # The state after all that was found, from libFuzzer's first line about it.
    all=$(grep -oE '\([0-9]+ inline 8-bit counters\)' "$build/$target.log" | grep -oE '[0-9]+' | head -n 1)
    reached=$(grep -oE 'cov: [0-9]+' "$build/$target.log" | tail -n 1 | grep -oE '[0-9]+')
    inputs=$(grep -oE 'number_of_executed_units: [0-9]+' "$build/$target.log" | grep -oE '[0-9]+')
    echo "$target: $inputs inputs, $reached of $all edges reached"
  done
  ((SECONDS < end)) || break
done
