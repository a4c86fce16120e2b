#!/bin/bash
# Tests the completion scripts in the shells themselves. zsh, fish and tcsh are tested only where they
# are installed; zsh and fish only for whether they can read the script.
# Usage: completion_test.sh PARSE_LINES_PROGRAM
set -u
program=$1
failures=0

source <("$program" --completion bash)

# expect "words, the last one to be completed" "the expected completions, sorted"
expect() {
    local -a words
    read -ra words <<<"$1"
    [[ $1 == *" " ]] && words+=("")
    COMP_WORDS=("${words[@]}")
    COMP_CWORD=$((${#words[@]} - 1))
    _muster "${words[0]}" 2>/dev/null
    local offered
    offered=$(printf '%s\n' ${COMPREPLY[@]+"${COMPREPLY[@]}"} | sort | tr '\n' ' ')
    offered=${offered% }
    if [[ $offered != "$2" ]]; then
        echo "completion of '$1': '$offered' and not '$2'"
        failures=$((failures + 1))
    fi
}

expect "muster --nn" "--nnodes"
expect "muster --rdzv" "--rdzv-backend --rdzv-conf --rdzv-endpoint --rdzv-id --rdzv-tls-allow --rdzv-tls-ca --rdzv-tls-cert --rdzv-tls-key --rdzv-token-file"
expect "muster --rdzv_" "--rdzv_backend --rdzv_conf --rdzv_endpoint --rdzv_id --rdzv_tls_allow --rdzv_tls_ca --rdzv_tls_cert --rdzv_tls_key --rdzv_token_file"
expect "muster --start-method " "fork forkserver spawn"
expect "muster --start-method fork" "fork forkserver"
expect "muster --start-method = f" "fork forkserver"
expect "muster --completion " "bash fish tcsh zsh"
expect "muster --print-completion " "bash tcsh zsh"
expect "muster --nnodes " ""
expect "muster --rdzv-backend " "c10d etcd etcd-v2 static"
expect "muster --rdzv_backend = e" "etcd etcd-v2"
expect "muster --nproc-per-node " "auto cpu gpu xpu"
expect "muster -t " "0 1 2 3"
expect "muster --c10d-allow m" "members"
here=$(dirname "${BASH_SOURCE[0]}")
for option in --failure-report --rdzv-token-file --rdzv-tls-ca --rdzv-tls-cert --rdzv_tls_key; do
    expect "muster $option $here/completion_t" "$here/completion_test.sh"
done
expect "muster --nnodes 2 --vers" "--version"
expect "muster --nnodes = 2 --vers" "--version"
expect "muster -m --vers" "--version"
expect "muster train.py --vers" ""
expect "muster --use" ""
expect "muster-launch --use-" "--use-env"

for shell in zsh fish; do
    if ! command -v "$shell" >/dev/null; then
        echo "completion_test: $shell is not installed: its script is not tried"
    elif ! "$program" --completion "$shell" | "$shell" -n; then
        echo "$shell cannot read its script"
        failures=$((failures + 1))
    fi
done

for shell in bash zsh tcsh; do
    if ! cmp -s <("$program" --completion "$shell") <("$program" --print-completion "$shell"); then
        echo "--print-completion $shell differs from --completion $shell"
        failures=$((failures + 1))
    fi
done
if ! command -v tcsh >/dev/null; then
    echo "completion_test: tcsh is not installed: its script is not tried"
elif ! PROGRAM=$program python3 "$here/tcsh_lines.py"; then
    failures=$((failures + 1))
fi
[[ $failures == 0 ]] && echo "completion_test: passed"
exit $((failures > 0))
