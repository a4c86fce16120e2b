# shellcheck shell=bash disable=SC2034,SC2154  # This file and its callers share variables.
# Functions that the scripts in this folder share: packages, the Python environment, the build, the main job.
# Sourced, never run. The caller has set `program` (its name, for messages) and strict mode.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/build/logs
venv=$root/.venv
launcher=${MUSTER_LAUNCHER:-$root/build/release/bin/muster}

# Debian 12's package names. The first list builds and runs muster, the second is for its tests.
BUILD_PACKAGES=(g++ cmake ninja-build pkg-config libboost1.81-dev libspdlog-dev nlohmann-json3-dev
  libcli11-dev catch2 libhwloc-dev libsystemd-dev libssl-dev libsqlite3-dev python3 python3-venv ccache)
TEST_PACKAGES=(libgloo-dev etcd-server clang-format-14 clang-19 libclang-rt-19-dev llvm-19 lld-19 clang-tidy-19 shellcheck
  iproute2 nftables openssl procps strace systemd systemd-container python3-yaml docker-compose zsh fish tcsh chromium)
# For scripts/package: its build, its build for aarch64, and the tests of the packages. make, perl and tcl compile the
# sources of SQLite and OpenSSL.
PACKAGE_PACKAGES=(cmake ninja-build binutils python3 python3-venv dpkg-dev xz-utils git make perl tcl)
AARCH64_PACKAGES=(binutils-aarch64-linux-gnu)
PACKAGE_TEST_PACKAGES=(debootstrap lintian)

TORCH_VERSION=2.13.0
TORCH_PACKAGE=${MUSTER_TORCH_PACKAGE:-torch==$TORCH_VERSION}
NUMPY_PACKAGE='numpy>=2.2,<3' # Training does not need it, but without it torch prints a warning for each rank.
# For the tests, in this order: Python's stacks of workers; Kubernetes' schemas, and jsonschema; a parser of Prometheus'
# text; a driver of Debian's Chromium; axe-core, which checks a page's accessibility; requests generated from musterd's
# OpenAPI file.
TEST_MODULES=('py-spy==0.4.3' 'kubernetes-validate==1.37.0' 'prometheus_client==0.26.0'
  'playwright==1.65.2' 'axe-playwright-python==0.1.8' 'schemathesis==4.32.5')

# Measured with the CPU build of torch; a build with CUDA takes about 7,000 MB more.
VENV_MB=2000
PRESET_MB=2000 # The mean: release takes 2,100, dev 2,500 and tsan 1,400.
SYSTEM_MB=2000
MB_PER_JOB=2048 # A compiler that compiles all files of a target as one, with sanitizers.

ACCURACY_FLOOR=95
MAIN_JOB_LIMIT_S=300

ENVIRONMENT_HELP="Environment:
  MUSTER_SKIP_PACKAGES=1  do not use apt: you have installed the system's packages
  MUSTER_TORCH_PACKAGE    the torch that pip installs (default: torch==$TORCH_VERSION). pip's own settings name
                          the index. If the index has a CUDA build of several GB and you want a smaller
                          build, name that build's version here
  MUSTER_PYTHON           the Python that makes .venv (default: python3)
  MUSTER_LAUNCHER         the program that starts the main job (default: build/release/bin/muster), to compare"

say() { printf '%s: %s\n' "$program" "$*"; }

die() {
  printf '%s: %s\n' "$program" "$1" >&2
  shift
  for line in "$@"; do printf '    %s\n' "$line" >&2; done
  exit 1
}

usage_error() {
  printf '%s: %s (--help lists the options)\n' "$program" "$1" >&2
  exit 2
}

# logged NAME COMMAND...: writes the command's output to build/logs/NAME.log, and prints its end after a failure.
logged() {
  local log=$logs/$1.log
  shift
  mkdir -p "$logs"
  if "$@" >"$log" 2>&1 </dev/null; then return 0; fi
  printf '    the end of %s:\n' "$log" >&2
  tail -n 80 "$log" | sed 's/^/    | /' >&2
  return 1
}

# timed WHAT COMMAND...: prints what begins, and afterwards how long it took. What WHAT has in brackets stands there once.
timed() {
  local what=$1 begin=$SECONDS
  shift
  say "$what …"
  "$@" || return
  say "${what%% (*}: done in $((SECONDS - begin)) s"
}

# logged_build NAME COMMAND...: as `logged` does. Also prints when ninja has done a quarter, a half and three quarters of
# its steps: a build is not silent for minutes.
logged_build() {
  local name=$1
  shift
  { logged "$name" with_quarters "$@"; } 3>&1
}

with_quarters() { "$@" 2>&1 | show_quarters; }

# show_quarters: copies its input to stdout, and prints the quarters to descriptor 3. Not awk: Debian's reads ahead.
show_quarters() {
  local line quarter shown=0
  while IFS= read -r line || [[ -n $line ]]; do
    printf '%s\n' "$line"
    if ! [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]] || ((BASH_REMATCH[2] < 20)); then continue; fi
    quarter=$((4 * BASH_REMATCH[1] / BASH_REMATCH[2]))
    if ((quarter <= shown || quarter > 3)); then continue; fi
    shown=$quarter
    say "    $((25 * quarter)) % of the steps are done (${BASH_REMATCH[1]} of ${BASH_REMATCH[2]})" >&3
  done
}

log_says() { grep -qiE "$2" "$logs/$1.log"; }

default_jobs() {
  local cores available_mb by_memory
  cores=$(nproc)
  available_mb=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  by_memory=$((available_mb / MB_PER_JOB))
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((cores < by_memory ? cores : by_memory))
}

check_jobs() {
  [[ $1 =~ ^[1-9][0-9]*$ ]] || usage_error "--jobs $1: expected a whole number from 1 on"
}

# require_disk FOLDER MB WHAT
require_disk() {
  local free_mb
  free_mb=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
  if ((free_mb < $2)); then
    die "too little disk: $1 has $free_mb MB free, $3 needs about $2 MB." \
      "Free some space, or clone to a larger disk, and run this again."
  fi
}

# --- Packages ----------------------------------------------------------------------------------

os_release_value() {
  # A test may name another file in MUSTER_OS_RELEASE.
  local file=${MUSTER_OS_RELEASE:-/etc/os-release}
  [[ -r $file ]] || return 0
  sed -n "s/^$1=//p" "$file" | tr -d '"' | head -n 1
}

# True on Debian 12, and on a distribution that names Debian 12 as the source of its packages.
is_bookworm() {
  local id like codename debian_codename
  id=$(os_release_value ID)
  like=$(os_release_value ID_LIKE)
  codename=$(os_release_value VERSION_CODENAME)
  debian_codename=$(os_release_value DEBIAN_CODENAME)
  [[ $debian_codename == bookworm ]] && return 0
  [[ $codename == bookworm && " $id $like " == *" debian "* ]]
}

missing_packages() {
  local package status
  for package in "$@"; do
    # shellcheck disable=SC2016  # ${db:...} is dpkg-query's, not the shell's.
    status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || true)
    # dpkg-query prints one line for each architecture of the package.
    grep -qx installed <<<"$status" || echo "$package"
  done
}

# Prints the words before a command that needs root: none for root itself, else sudo. Fails without sudo.
root_prefix() {
  if [[ $(id -u) == 0 ]]; then return 0; fi
  command -v sudo >/dev/null || return 1
  # Without a terminal, sudo must not wait for a password.
  if [[ -t 0 ]]; then echo sudo; else echo sudo -n; fi
}

# install_packages MAY_INSTALL PACKAGE...
install_packages() {
  local may_install=$1 missing prefix prefix_words
  shift
  if [[ ${MUSTER_SKIP_PACKAGES:-} == 1 ]]; then
    say "packages: left to you (MUSTER_SKIP_PACKAGES=1)"
    check_tools
    return 0
  fi
  if ! is_bookworm; then
    die "this is $(os_release_value PRETTY_NAME), and the packages are known for Debian 12 only." \
      "Install these, or what your system calls them, by hand:" "$*" \
      "(CMake 3.25, g++ 12, Boost 1.81 and Python 3.10, or newer.) Then go on with" \
      "MUSTER_SKIP_PACKAGES=1 $0"
  fi
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    say "packages: all $# are installed"
    return 0
  fi
  if [[ $may_install != yes ]]; then
    die "missing packages, and --no-install was given:" "apt-get install ${missing[*]}"
  fi
  if ! prefix=$(root_prefix); then
    die "missing packages, and this is neither root nor is there sudo. Ask an administrator for:" \
      "apt-get install ${missing[*]}"
  fi
  read -ra prefix_words <<<"$prefix"
  require_disk /usr "$SYSTEM_MB" "the packages"
  say "packages: installing ${missing[*]}"
  local apt=("${prefix_words[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get
    -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3)
  local begin=$SECONDS
  logged apt-update "${apt[@]}" -o APT::Update::Error-Mode=any update || apt_failed apt-update
  logged apt-install "${apt[@]}" install -y --no-install-recommends "${missing[@]}" ||
    apt_failed apt-install
  say "packages: installed in $((SECONDS - begin)) s"
}

apt_failed() {
  if log_says "$1" 'a password is required|not in the sudoers|not allowed to execute'; then
    die "sudo did not let us install packages. Ask an administrator, or run this where you can" \
      "type sudo's password."
  elif log_says "$1" 'no space left|have enough free space'; then
    die "apt ran out of disk. Free some space and run this again."
  elif log_says "$1" 'could not get lock|unable to acquire the dpkg|unable to lock'; then
    die "another program is installing packages. Wait until it is done and run this again."
  elif log_says "$1" 'failure resolving|could not resolve|could not connect|unreachable|failed to fetch|timed out'; then
    die "apt cannot reach its package servers: no network, or a proxy that apt does not know." \
      "Once 'apt-get update' works, run this again."
  elif log_says "$1" 'unable to locate package|no installation candidate'; then
    die "apt does not know a package: its sources lack part of Debian 12's main section." \
      "The log above names the package."
  fi
  die "apt failed: the log above says why."
}

# With MUSTER_SKIP_PACKAGES=1: fails if a program that the build needs is missing.
check_tools() {
  local tool absent=()
  for tool in cmake ninja g++ pkg-config; do
    command -v "$tool" >/dev/null || absent+=("$tool")
  done
  if ((${#absent[@]} > 0)); then
    die "not found on PATH: ${absent[*]}" "They are needed: ${BUILD_PACKAGES[*]} (Debian 12's names)."
  fi
}

# --- Python ------------------------------------------------------------------------------------

installed_version() {
  "$venv/bin/python" -c "import importlib.metadata as m; print(m.version('$1'))" 2>/dev/null || true
}

have_torch() {
  local version
  version=$(installed_version torch)
  [[ -n $version && -n $(installed_version numpy) ]] || return 1
  if [[ -n ${MUSTER_TORCH_PACKAGE:-} ]]; then
    [[ $(cat "$venv/muster-torch-package" 2>/dev/null) == "$TORCH_PACKAGE" ]]
  else
    [[ ${version%%+*} == "$TORCH_VERSION" ]]
  fi
}

# make_venv MAY_INSTALL: creates .venv, without torch, and puts it first on PATH. add_torch installs torch.
make_venv() {
  local may_install=$1 python=${MUSTER_PYTHON:-python3}
  if ! have_torch; then
    if [[ $may_install != yes ]]; then
      die "no torch in .venv, and --no-install was given. By hand:" \
        "$python -m venv .venv && .venv/bin/pip install '$TORCH_PACKAGE' '$NUMPY_PACKAGE'"
    fi
    check_python "$python"
    require_disk "$root" "$VENV_MB" "Python's environment with torch"
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
      say "python: making .venv with $("$python" --version 2>&1)"
      # --clear removes an incomplete environment, or one whose Python was removed.
      local clear=()
      [[ -e $venv/pyvenv.cfg ]] && clear=(--clear)
      logged venv "$python" -m venv "${clear[@]}" "$venv" || die "the virtual environment failed."
    fi
  fi
  # As `. .venv/bin/activate` does: the launcher and CMake then find this Python.
  export VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH
  unset PYTHONHOME
}

add_torch() {
  local begin=$SECONDS
  if have_torch; then
    say "python: .venv has torch $(installed_version torch)"
    return 0
  fi
  say "python: installing $TORCH_PACKAGE into .venv (200 MB to several GB, as your index has it)"
  logged pip env LC_ALL=C "$venv/bin/python" -m pip install --no-input \
    --disable-pip-version-check "$TORCH_PACKAGE" "$NUMPY_PACKAGE" || pip_failed
  printf '%s\n' "$TORCH_PACKAGE" >"$venv/muster-torch-package"
  say "python: torch is installed, after $((SECONDS - begin)) s"
}

fetch_promtool() {
  local folder=$1
  mkdir -p "$folder"
  (
    cd "$folder" && rm -f prometheus_*.deb &&
      apt-get download -o Acquire::Retries=3 prometheus &&
      dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool &&
      rm -f prometheus_*.deb
  )
}

# add_promtool MAY_INSTALL: extracts promtool from Debian's package of Prometheus into build/. The package is not
# installed, because it would start a server on this machine. Without promtool, tests that need it are skipped.
add_promtool() {
  local folder=$root/build/promtool
  if command -v promtool >/dev/null || [[ -x $folder/promtool ]]; then return 0; fi
  if [[ $1 == yes && ${MUSTER_SKIP_PACKAGES:-} != 1 ]] && logged promtool fetch_promtool "$folder"; then
    say "promtool: extracted from Debian's package into $folder"
  else
    say "no promtool: tests that need it will be skipped" >&2
  fi
}

# add_test_modules MAY_INSTALL: installs TEST_MODULES. Without a module, tests that need it are skipped with a message.
add_test_modules() {
  local module name
  for module in "${TEST_MODULES[@]}"; do
    name=${module%%==*}
    [[ $(installed_version "$name") == "${module#*==}" ]] && continue
    if [[ $1 == yes ]] && logged "pip-$name" env LC_ALL=C "$venv/bin/python" -m pip install \
      --no-input --disable-pip-version-check "$module"; then
      say "python: installed $module"
    else
      say "python: no $module in .venv: tests that need it will be skipped" >&2
    fi
  done
}

check_python() {
  command -v "$1" >/dev/null || die "there is no $1 on PATH. Install Python 3.10 or newer."
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$("$1" --version 2>&1) is too old: torch $TORCH_VERSION needs 3.10 or newer." \
      "Name a newer one: MUSTER_PYTHON=/path/to/python3 $0"
  "$1" -c 'import venv, ensurepip' 2>/dev/null ||
    die "$(command -v "$1") cannot make virtual environments: it has no ensurepip." \
      "On Debian, 'apt-get install python3-venv' brings it for /usr/bin/python3. Or name another" \
      "Python: MUSTER_PYTHON=/usr/bin/python3 $0"
}

pip_failed() {
  if log_says pip 'no space left on device'; then
    die "pip ran out of disk while installing $TORCH_PACKAGE. A build of torch with CUDA takes about" \
      "9 GB in all. Free some space, or choose a smaller build with MUSTER_TORCH_PACKAGE."
  elif log_says pip 'failed to establish|connection (error|refused|aborted)|name resolution|network is unreachable|timed out|ProxyError|SSLError|from versions: none'; then
    die "pip cannot reach its package index: no network, or a proxy or mirror that pip does not know" \
      "(pip config list). Run this again once it is reachable."
  elif log_says pip 'no matching distribution'; then
    die "pip's index has no package that fits $TORCH_PACKAGE and this Python and machine." \
      "Another requirement: MUSTER_TORCH_PACKAGE='torch==...' $0"
  fi
  die "pip failed: the log above says why."
}

# --- Build and main job ------------------------------------------------------------------------

# Lets CMake use ccache, if it is installed. All checkouts share the cache: ccache leaves out the names of their folders,
# and compares compilers by their contents.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true CCACHE_COMPILERCHECK=content
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # For precompiled headers; ccache's manual asks for both.
  launcher_flags=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
}

# build_preset PRESET JOBS TARGET...: configures and builds; no target means everything. The files of each target are
# compiled as one: a full build then takes a third of the time.
build_preset() {
  local preset=$1 jobs=$2 fresh=() launcher_flags=() cache=$root/build/$1/CMakeCache.txt
  shift 2
  use_ccache
  cd "$root" || return 1
  # CMake refuses a build folder that was copied or moved here from elsewhere.
  if [[ -e $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
    fresh=(--fresh)
  fi
  cmake --preset "$preset" "${fresh[@]}" "${launcher_flags[@]}" -DMUSTER_UNITY=ON \
    -DPython3_EXECUTABLE="$venv/bin/python" || return 1
  if (($# > 0)); then set -- --target "$@"; fi
  cmake --build --preset "$preset" --parallel "$jobs" "$@"
}

# Trains on the digits with two processes. Fails unless the accuracy is above ACCURACY_FLOOR.
run_main_job() {
  local log=$logs/main-job.log begin=$SECONDS accuracy
  local job=(--standalone --nproc-per-node=2 examples/digits/train.py --save build/digits.pt)
  mkdir -p "$logs"
  cd "$root" || return 1
  say "running: ${launcher#"$root/"} ${job[*]}"
  # --foreground lets ctrl-C reach the launcher, which then stops its workers. tee -i ignores ctrl-C and goes on
  # printing.
  if ! timeout --foreground --kill-after=30 "$MAIN_JOB_LIMIT_S" "$launcher" "${job[@]}" 2>&1 |
    tee -i "$log"; then
    say "the main job failed, or took longer than $MAIN_JOB_LIMIT_S s; its output is above" >&2
    return 1
  fi
  accuracy=$(sed -n 's/.*test accuracy: \([0-9.]*\) %.*/\1/p' "$log" | tail -n 1)
  if [[ -z $accuracy ]]; then
    say "the main job ended well, but named no accuracy" >&2
    return 1
  fi
  if ! awk -v reached="$accuracy" -v floor="$ACCURACY_FLOOR" 'BEGIN { exit !(reached > floor) }'; then
    say "two processes reached $accuracy % accuracy: expected more than $ACCURACY_FLOOR %" >&2
    return 1
  fi
  say "two processes reached $accuracy % accuracy on digits they had not seen, in $((SECONDS - begin)) s"
}
