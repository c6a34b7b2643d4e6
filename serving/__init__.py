"""Serve a model repository: a gateway for arrays in physical units, and the Triton that runs the models."""

import os

# Read when NumPy and SciPy are imported. The classical solvers multiply thousands of small matrices, and in each
# product OpenBLAS's threads wait for one another on cores that other work uses, too: 141 x 141 points took 0.2 to 5 s
# on a busy machine with two cores, and take 0.1 to 0.2 s there on one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# NumPy asks the kernel for large pages for arrays of 4 MiB and more. On a virtual machine, the first byte that is
# written to one of 2 MiB takes 2 to 5 ms, while nothing else runs: a body of 64 MiB took 150 ms, and takes 45.
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
