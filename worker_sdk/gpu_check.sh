#!/usr/bin/env bash
# Builds the SDK with a CUDA build of torch, and runs the checks that need a GPU. Prints a line for
# each check, and the figures for docs/gpu.md.
#
#   worker_sdk/gpu_check.sh [TORCH]      TORCH: the folder of the torch package (default: python3's)
#   BUILD=build/gpu JOBS=4 worker_sdk/gpu_check.sh
#
# Needs cmake, ninja, g++ 12 or later, the packages that CMakeLists.txt names, Gloo's headers
# (Debian: libgloo-dev), and a torch with CUDA, whose wheels have nccl.h and CUDA's headers. It needs
# no nvcc.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/gpu}
torch=${1:-$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')}

step() { printf '\n== %s\n' "$*"; }

step "what is here"
python3 - <<'PYTHON'
import torch
print("torch", torch.__version__, "CUDA", torch.version.cuda, "NCCL", torch.cuda.nccl.version())
print("GPUs", torch.cuda.device_count(), torch.cuda.get_device_name(0))
PYTHON

step "build"
mkdir -p "$(dirname "$build")"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMUSTER_SDK=ON -DMUSTER_TORCH="$torch" |
  tee "$build.configure.log" | grep 'muster: SDK'
grep -q 'NCCL: TRUE' "$build.configure.log" || { echo "NCCL was not compiled in"; exit 1; }
cmake --build "$build" -j "${JOBS:-4}" --target sdk_gpu sdk_ranks example_digits

# Runs one rank on its own GPU, without a launcher.
alone() {
  env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$(port)" "$@"
}
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# Runs two ranks on the same GPU.
pair() {
  local at; at=$(port)
  env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$at" "$@" &
  local first=$!
  env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$at" "$@"
  wait "$first"
}

step "NCCL, world of 1: collectives, lazy and eager"
alone "$build/tests/sdk_gpu" nccl-lazy
alone "$build/tests/sdk_gpu" nccl-eager
step "digits with NCCL, world of 1"
alone "$build/examples/digits" | tail -1
step "a transformer block with NCCL, world of 1: DDP against no DDP"
alone "$build/tests/sdk_gpu" transformer
step "Gloo with CUDA tensors, two ranks on one GPU"
pair "$build/tests/sdk_gpu" gloo-cuda
step "all checks passed"
