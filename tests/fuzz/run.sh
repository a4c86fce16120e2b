#!/bin/sh
# Fuzzes the store's codec and table: tests/fuzz/run.sh [seconds]
# Needs clang with libFuzzer (Debian: clang-14); without it, says so and exits with 77.
set -eu
seconds=${1:-${MUSTER_FUZZ_SECONDS:-60}}
root=$(cd "$(dirname "$0")/../.." && pwd)
clang=
for name in clang++ clang++-14 clang++-16 clang++-19; do
  if command -v "$name" >/dev/null 2>&1; then clang=$name; break; fi
done
build=$root/build/fuzz
mkdir -p "$build/found"
if [ -z "$clang" ] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
  "$clang" -fsanitize=fuzzer -x c++ - -o "$build/probe" 2>/dev/null; then
  echo "SKIPPED: no clang with libFuzzer (apt-get install clang-14)"
  exit 77
fi
cd "$root"
"$clang" -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. \
  tests/fuzz/store_codec_fuzz.cc rendezvous/core/shared_bytes.cc rendezvous/core/store_table.cc \
  rendezvous/core/store_waits.cc rendezvous/wire/c10d_codec.cc rendezvous/wire/reply_queue.cc \
  -o "$build/store_codec_fuzz"
exec "$build/store_codec_fuzz" "$build/found" tests/fuzz/corpus -max_total_time="$seconds" -max_len=8192 \
  -timeout=10 -rss_limit_mb=1024 -artifact_prefix="$build/" -print_final_stats=1
