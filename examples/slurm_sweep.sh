#!/bin/sh
#SBATCH --job-name=flagstone-sweep
#SBATCH --array=0-7
#SBATCH --cpus-per-task=4
# A sweep as a Slurm array: sbatch examples/slurm_sweep.sh grid.toml /shared/runs
# Each task makes its part of what the folder lacks. Submitted again, it makes what is missing; afterwards
# flagstone sweep collect /shared/runs -o rows.parquet
set -eu
exec flagstone sweep "$1" --out "$2" --shard auto --jobs "${SLURM_CPUS_PER_TASK:-1}"
