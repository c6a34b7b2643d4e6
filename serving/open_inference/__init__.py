"""Takes the Open Inference Protocol over HTTP (`/v2`) and gRPC, gives the same answers as `/v1`, to any Triton client.

What the protocol offers beyond questions to models (repository control, shared memory, traces, logs, statistics) is
Triton's own and not here: routes and methods are listed one by one. Protocol:
https://github.com/kserve/open-inference-protocol; binary tensors: Triton's `extension_binary_data`.
"""
