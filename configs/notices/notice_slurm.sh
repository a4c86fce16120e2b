#!/bin/sh
# Says when Slurm's time limit ends this job: a program for --notice-from of muster.
#
#   srun muster --cluster --notice-from "notice_slurm.sh 180" train.py
#
# $1: how long before the end, in seconds (180). SLURM_JOB_END_TIME is set since Slurm 22.05.
set -eu
ahead=${1:-180}
end=${SLURM_JOB_END_TIME:?is not set: Slurm 22.05 or newer sets it}
left=$((end - ahead - $(date +%s)))
if [ "$left" -gt 0 ]; then sleep "$left"; fi
left=$((end - $(date +%s)))
if [ "$left" -lt 0 ]; then left=0; fi
echo "$left the time limit of job ${SLURM_JOB_ID:-of Slurm}"
