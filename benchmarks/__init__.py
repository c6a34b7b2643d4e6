"""The benchmarks: measurements of the project beside its baselines, and the tables of the documentation."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else ONNX Runtime reports to Microsoft; read when it is imported
