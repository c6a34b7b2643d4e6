"""Export of checkpoints as Triton model versions: one graph for every grid, compared with its network."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else ONNX Runtime reports to Microsoft; read when it is imported
