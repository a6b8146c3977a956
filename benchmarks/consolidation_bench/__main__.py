"""``python -m benchmarks.consolidation_bench``."""

from benchmarks.consolidation_bench.run import main

main()
