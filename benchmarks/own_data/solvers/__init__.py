"""The data sets, each made by another project's solver in an environment of its own.

`python -m benchmarks.own_data.solvers NAME SAMPLES FOLDER` writes one of them.
"""
