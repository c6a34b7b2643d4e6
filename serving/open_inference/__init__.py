"""The Open Inference Protocol over HTTP (`/v2`) and gRPC, for any client of Triton.

What the protocol offers beyond inference (repository control, shared memory, traces, logs, statistics) stays with
Triton and is not offered here: routes and methods are listed one by one. Protocol:
https://github.com/kserve/open-inference-protocol; binary tensors: Triton's `extension_binary_data`.
"""
