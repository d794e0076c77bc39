"""The benchmarks: each figure is printed with its target and its ratio to a reference measured in the same run."""
