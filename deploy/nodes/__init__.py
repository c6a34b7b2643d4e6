"""Several nodes, each a gateway with its Triton, behind one Envoy.

- `envoy`: the configuration of Envoy, for nodes on this machine and for Kubernetes
- `node`: the process of one node in a network namespace, with the link to it
- `cluster`: all nodes and Envoy, started, changed and stopped
"""
