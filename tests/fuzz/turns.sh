#!/bin/bash
# Fuzzes all decoders in turns, and says how much of their code was reached.
#
#   tests/fuzz/turns.sh SECONDS [TARGET...]     one turn: each target for so long, one after the other
#   tests/fuzz/turns.sh --hours HOURS [--jobs N] [--idle] [TARGET...]
#                                               turns of 10 minutes until the time is over, N targets at
#                                               a time (default: one for each core); the target with the
#                                               least CPU time so far goes next
#   tests/fuzz/turns.sh --merge [TARGET...]     puts what was found into the committed corpora, as far as it
#                                               reaches code that nothing else there reaches
#   tests/fuzz/turns.sh --list TARGET|ARCHIVE   one line for each input of a corpus: its name, size, digest and first bytes
#   tests/fuzz/turns.sh --add TARGET FILE...    puts these files into the corpus, under their own names
#
# --idle: at the lowest priority, so that others on the machine hardly notice.
#
# Fuzzing and --merge need clang with libFuzzer (Debian: clang-19 and libclang-rt-19-dev); without it, the script says so
# and exits with 77. The corpus of a target is the archive tests/fuzz/corpora/TARGET.tar, which each turn unpacks into
# build/fuzz/corpora/TARGET. Equal inputs give an equal archive. Dictionaries are tests/fuzz/dictionaries/TARGET. What was
# found to reach more stays in build/fuzz/found/TARGET for the next time. build/fuzz/hours has the CPU seconds of each
# target, added up over all calls with --hours. MUSTER_FUZZ_BUILD names another folder than build/fuzz.
#
# A finding ends the turns of its target, and the exit code is 1: its input is build/fuzz/TARGET-crash-*. Once it is fixed,
# the input gets a name of its own and is put into the corpus with --add. --merge removes no input whose name is not a hash.
set -euo pipefail
{  # bash reads all of it before it begins: the file may be edited while it runs for hours.

usage() {
  sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" >&2
  exit 2
}

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath -m "${MUSTER_FUZZ_BUILD:-$root/build/fuzz}")
mode=turn hours=0 jobs=1 turn=0 idle=
case ${1:-} in
  --hours)
    mode=hours hours=${2:-} turn=600 jobs=$(nproc)
    shift 2 || usage
    while [[ ${1:-} == --* ]]; do
      case $1 in
        --jobs) jobs=${2:-}; shift 2 || usage ;;
        --idle) idle=yes; shift ;;
        *) usage ;;
      esac
    done
    ;;
  --merge) mode=merge; shift ;;
  --list) mode=list; shift; (($# == 1)) || usage ;;
  --add) mode=add; shift; (($# >= 2)) || usage ;;
  *) turn=${1:-}; shift || usage ;;
esac
[[ $turn =~ ^[0-9]+$ && $hours =~ ^[0-9]+(\.[0-9]+)?$ && $jobs =~ ^[1-9][0-9]*$ ]] || usage
# unpack ARCHIVE FOLDER: the folder then has the inputs of the archive, and no others.
unpack() {
  rm -rf "$2"
  mkdir -p "$2"
  if [[ -f $1 ]]; then tar -xf "$1" -C "$2"; fi
}

# pack FOLDER ARCHIVE: sorted, without times, owners or modes of this machine.
pack() {
  tar -c --format=ustar --blocking-factor=1 --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0644 \
    -f "$2.new" -C "$1" --verbatim-files-from --files-from=<(cd "$1" && find . -type f -printf '%P\n' | LC_ALL=C sort)
  mv "$2.new" "$2"
}

# list_inputs ARCHIVE
list_inputs() {
  local inputs input
  inputs=$(mktemp -d)
  # shellcheck disable=SC2064  # The folder of now.
  trap "rm -rf '$inputs'" EXIT
  unpack "$1" "$inputs"
  for input in "$inputs"/*; do
    printf '%-44s %6d  %.16s  %s\n' "${input##*/}" "$(stat -c %s "$input")" "$(sha256sum <"$input")" \
      "$(head -c 60 "$input" | LC_ALL=C tr -c '[:print:]' .)"
  done
}

# For --list by git diff, which names a copy of the archive (docs/testing.md).
if [[ $mode == list && -f $1 ]]; then
  list_inputs "$1"
  exit 0
fi
files=()
if [[ $mode == add ]]; then
  mapfile -t files < <(realpath -e "${@:2}")
  ((${#files[@]} == $# - 1)) || exit 2
  set -- "$1"
fi
targets=("$@")
cd "$root"
all_targets=(tests/fuzz/*_fuzz.cc)
all_targets=("${all_targets[@]#tests/fuzz/}")
all_targets=("${all_targets[@]%_fuzz.cc}")
((${#targets[@]})) || targets=("${all_targets[@]}")
for target in "${targets[@]}"; do
  [[ -f tests/fuzz/${target}_fuzz.cc ]] || { echo "turns.sh: no target $target; there are: ${all_targets[*]}" >&2; exit 2; }
done

# archive_of TARGET, corpus_of TARGET: the committed archive, and the folder that it is unpacked into.
archive_of() { echo "tests/fuzz/corpora/$1.tar"; }
corpus_of() { echo "$build/corpora/$1"; }

if [[ $mode == list ]]; then
  list_inputs "$(archive_of "$target")"
  exit 0
fi
if [[ $mode == add ]]; then
  unpack "$(archive_of "$target")" "$(corpus_of "$target")"
  cp -t "$(corpus_of "$target")" "${files[@]}"
  pack "$(corpus_of "$target")" "$(archive_of "$target")"
  exit 0
fi

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
# What the targets may need: the .cc file of each header that they include, of each that those include, and so on. A target
# links what it uses of it, so a decoder that is cut in two needs no change here.
declare -A known=() more_sources=(
  [worker_sdk/src/notice_lines.h]=worker_sdk/src/flat_json.cc
  [rendezvous/store/store_table.h]=rendezvous/store/store_waits.cc
  [rendezvous/torchrun/state_codec.h]="rendezvous/torchrun/state_decoder.cc rendezvous/torchrun/state_encoder.cc")
decoders=()
find_sources() {
  local header file
  while read -r header; do
    for file in "$header" "${header%.h}.cc" ${more_sources[$header]:-}; do
      [[ -f $file && -z ${known[$file]:-} ]] || continue
      known[$file]=yes
      if [[ $file == *.cc ]]; then
        if grep -q '^#include ".*\.inc"' "$file"; then continue; fi  # CMake generates these, for programs only.
        decoders+=("$file")
      fi
      find_sources "$file"
    done
  done < <(sed -n 's/^#include "\(.*\)"/\1/p' "$1")
}
for target in "${targets[@]}"; do find_sources "tests/fuzz/${target}_fuzz.cc"; done

[[ -x /usr/bin/llvm-symbolizer-19 ]] && export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-19
if [[ -n $idle ]]; then
  renice -n 19 $$ >/dev/null
  chrt -i -p 0 $$ 2>/dev/null || true  # Where it is not allowed, niceness alone.
fi

compiler=("$clang" -std=c++20 -g1 -O1 "-fsanitize=fuzzer,address,undefined,float-cast-overflow" -fno-sanitize-recover=all
  -Wno-deprecated-declarations)
command -v ccache >/dev/null && cached=(ccache) || cached=()
mkdir -p "$build/objects"

# object_of SOURCE: leaves its name in $object.
object_of() { object=$build/objects/${1//\//_}.o; }

compile() {
  object_of "$1"
  "${cached[@]}" "${compiler[@]}" -I. -Iworker_sdk/include -DMUSTER_LIBFUZZER -DMUSTER_VERSION='"fuzz"' -c "$1" -o "$object"
}

compilers=0
for source in "${decoders[@]}" "${targets[@]/%/_fuzz.cc}"; do
  [[ $source == */* ]] || source=tests/fuzz/$source
  compile "$source" &
  if ((++compilers >= $(nproc))); then
    wait -n
    compilers=$((compilers - 1))
  fi
done
for ((; compilers > 0; --compilers)); do wait -n; done
objects=()
for source in "${decoders[@]}"; do
  object_of "$source"
  objects+=("$object")
done
rm -f "$build/decoders.a"
ar rcs "$build/decoders.a" "${objects[@]}"
for target in "${targets[@]}"; do
  object_of "tests/fuzz/${target}_fuzz.cc"
  "${compiler[@]}" "$object" "$build/decoders.a" -o "$build/${target}_fuzz"
done

# run_target TARGET OPTION...: over its corpora, in the background; its process is $fuzzer.
run_target() {
  local target=$1 folders=("$build/found/$1") words=()
  shift
  mkdir -p "${folders[0]}"
  folders+=("$(corpus_of "$target")")
  unpack "$(archive_of "$target")" "${folders[1]}"
  [[ -f tests/fuzz/dictionaries/$target ]] && words=("-dict=tests/fuzz/dictionaries/$target")
  # By the clock on the wall, which goes on while others have the processor.
  local patience=10
  [[ -n $idle ]] && patience=300
  "$build/${target}_fuzz" "${folders[@]}" "${words[@]}" -max_len=8192 -timeout=$patience -rss_limit_mb=1024 \
    -artifact_prefix="$build/$target-" -handle_term=1 "$@" >"$build/$target.log" 2>&1 &
  fuzzer=$!
}

# was_stopped TARGET: after a timeout: whether its input is quick when it is tried again. Somebody may have stopped the
# fuzzer for a while (SIGSTOP), or given the processor to others: libFuzzer's limit is by the clock on the wall.
was_stopped() {
  local input
  input=$(grep -oE 'Test unit written to .*' "$build/$1.log" | tail -n 1)
  input=${input#Test unit written to }
  [[ -f $input ]] && "$build/$1_fuzz" -timeout=60 "$input" >"$build/$1.again.log" 2>&1 && rm "$input"
}

# report TARGET EXIT_CODE: one line about a turn; false after a finding.
report() {
  local target=$1 code=$2 log=$build/$1.log all reached inputs
  if ((code == 70)) && was_stopped "$target"; then code=0; fi  # 70: libFuzzer's code for a timeout.
  # 72: libFuzzer was told to end. 143: before it could notice that.
  if ((code != 0 && code != 72 && code != 143)); then
    cat "$log"
    echo "turns.sh: $target: a finding: $(grep -o 'Test unit written to .*' "$log" | tail -n 1)" >&2
    return 1
  fi
  # The state after all that was found, from libFuzzer's first line about it.
  all=$(grep -oE '\([0-9]+ inline 8-bit counters\)' "$log" | grep -oE '[0-9]+' | head -n 1) || all='?'
  reached=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | grep -oE '[0-9]+') || reached='?'
  inputs=$(grep -oE 'number_of_executed_units: [0-9]+' "$log" | grep -oE '[0-9]+') || inputs='?'
  echo "$target: $inputs inputs, $reached of $all edges reached"
}

# cpu_seconds_of TARGET: by the account.
cpu_seconds_of() {
  [[ -f $build/hours ]] && awk -v target="$1" '$1 == target { found = $2 } END { print found + 0 }' "$build/hours" || echo 0
}

# add_cpu_seconds TARGET SECONDS
add_cpu_seconds() {
  (
    flock 9
    { cat "$build/hours" 2>/dev/null || true; echo "$1 $2"; } | awk '
      $1 != "total" && $1 !~ /^#/ { sum[$1] += $2; all += $2 }
      END {
        print "# CPU seconds of tests/fuzz/turns.sh --hours"
        fflush()
        for (target in sum) printf "%s %d\n", target, sum[target] | "sort"
        close("sort")
        printf "total %d\n", all
      }' >"$build/hours.new"
    mv "$build/hours.new" "$build/hours"
  ) 9>"$build/hours.lock"
}

# hours_turn TARGET SECONDS: one turn, with an entry in the account. In a process of its own.
hours_turn() {
  local code interrupted=yes used
  fuzzer=
  trap 'interrupted=yes; [[ -z $fuzzer ]] || kill -TERM "$fuzzer" 2>/dev/null || true' TERM
  run_target "$1" -max_total_time="$2" -print_final_stats=1
  while [[ -n $interrupted ]]; do
    interrupted=
    wait "$fuzzer" && code=0 || code=$?
  done
  # Its second line is about the children that have ended. Not in a pipe: that would be another process.
  times >"$build/$1.times"
  used=$(awk 'NR == 2 { split($0, part, /[ms ]+/); printf "%d", 60 * (part[1] + part[3]) + part[2] + part[4] + 0.5 }' "$build/$1.times")
  add_cpu_seconds "$1" "$used"
  report "$1" "$code"
}

if [[ $mode == turn ]]; then
  fuzzer=
  trap '[[ -z $fuzzer ]] || kill "$fuzzer" 2>/dev/null || true' EXIT
  for target in "${targets[@]}"; do
    # The same each time, as far as its time goes.
    run_target "$target" -max_total_time="$turn" -seed=1 -print_final_stats=1
    wait "$fuzzer" && code=0 || code=$?
    report "$target" "$code" || exit 1
  done
  exit 0
fi

if [[ $mode == merge ]]; then
  for target in "${targets[@]}"; do
    corpus=$(corpus_of "$target")
    new=$build/merged/$target
    rm -rf "$new"
    mkdir -p "$new" "$build/found/$target"
    unpack "$(archive_of "$target")" "$corpus"
    before=$(find "$corpus" -type f | wc -l)
    # What has a name of its own stays: it is a seed that somebody made, or was a finding.
    find "$corpus" -type f ! -regex '.*/[0-9a-f]\{40\}' -exec cp -t "$new" {} +
    # One input for each edge, not for each count of it: a corpus of a hundred files, not of thousands.
    "$build/${target}_fuzz" -set_cover_merge=1 -use_counters=0 -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
      -artifact_prefix="$build/$target-" "$new" "$corpus" "$build/found/$target" >"$build/$target.merge.log" 2>&1 ||
      { cat "$build/$target.merge.log"; exit 1; }
    find "$corpus" -type f -regex '.*/[0-9a-f]\{40\}' -delete
    cp "$new"/* "$corpus" 2>/dev/null || true
    pack "$corpus" "$(archive_of "$target")"
    echo "$target: $(find "$corpus" -type f | wc -l) inputs ($before before), $(du -sb "$corpus" | cut -f1) bytes"
  done
  exit 0
fi

echo "turns.sh: process $$; kill $$ ends it, and the account $build/hours is kept"
end=$(awk -v now="$SECONDS" -v hours="$hours" 'BEGIN { print int(now + hours * 3600) }')
declare -A running=() found=()
stopping=
trap 'stopping=yes; ((${#running[@]})) && kill -TERM "${!running[@]}" 2>/dev/null' TERM INT

# least_fuzzed: the target that is not running and had the least CPU time; in $next, empty if there is none.
least_fuzzed() {
  local target seconds least=
  next=
  for target in "${targets[@]}"; do
    [[ -n ${found[$target]:-} || " ${running[*]} " == *" $target "* ]] && continue
    seconds=$(cpu_seconds_of "$target")
    if [[ -z $least ]] || ((seconds < least)); then next=$target least=$seconds; fi
  done
}

while :; do
  while [[ -z $stopping ]] && ((${#running[@]} < jobs && end - SECONDS >= 10)); do
    least_fuzzed
    [[ -n $next ]] || break
    left=$((end - SECONDS))
    hours_turn "$next" $((left < turn ? left : turn)) &
    running[$!]=$next
  done
  ((${#running[@]})) || break
  done_pid=
  wait -n -p done_pid "${!running[@]}" && code=0 || code=$?
  [[ -n ${done_pid:-} ]] || continue  # A signal.
  ((code == 0)) || found[${running[$done_pid]}]=yes
  unset "running[$done_pid]"
done
cat "$build/hours"
((${#found[@]} == 0)) || { echo "turns.sh: findings: ${!found[*]}" >&2; exit 1; }
exit 0
}
