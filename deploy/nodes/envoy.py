"""The configuration of Envoy before the nodes: one for this machine and for Kubernetes, which differ in addresses.

`python -m deploy.nodes.envoy` writes that of Kubernetes.

What is repeated. Everything that computes is a pure function of its request, so Envoy sends it to another node after a
lost connection or a 503, and once more, beside the first, when it has waited for `try_seconds` (hedging: the first
response counts, and a long computation is not cut). Nothing is repeated once a response has begun: the client resumes a
rollout from its last frame. Inversions are jobs of one node: they are repeated only if no node has received them, and
a cookie leads later requests for a job to its node.

What a silent node holds up. A request goes to the node with the fewest in flight, of all. One that does not respond
keeps those that it has, and so gets no more as soon as it has more than the others: before anything has noticed its
fault, and however short the other requests are. Its readiness is requested every second, and two failures take it out.
That resets no request that it holds (Envoy does so for TCP alone): these are sent to a second node after
`try_seconds`, and a stream without a frame for `frame_seconds` ends, before the time limit of the client does, which
resumes it. Over gRPC a connection whose other side does not respond to pings ends within ten seconds.

What bounds repetitions. A request that waits because all nodes are busy cannot be told from one that a silent node
holds, and Triton computes both copies: so `try_seconds` is above what requests wait at 95 % of what the nodes compute,
and beyond that `RETRY_PERCENT` of the requests in flight may be repetitions.

What does not count against a node. A 502 or 503 may be the fault of a request, so only lost connections and timeouts
eject a node; its readiness says the rest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.connection import KEEP_ALIVE_SECONDS
from serving.settings import Settings

Document = dict[str, Any]

MANIFEST = Path(__file__).parents[1] / "kubernetes/components/envoy/envoy.json"
#: Routes that only compute, under any prefix: `serving.protocols`. Those that only read are GET and HEAD.
PURE = (
    r"/v1/models/[^/]+(/versions/[^/]+)?/(predict|vjp|jvp|reference)",
    r"/v2/models/[^/]+(/versions/[^/]+)?/infer",
    r"/tesseract/[^/]+/(apply|vector_jacobian_product|jacobian_vector_product|abstract_eval)",
    r"/umbridge/(Info|ModelInfo|InputSizes|OutputSizes|Evaluate|Gradient|ApplyJacobian|ApplyHessian)",
)
STREAM = r"/v1/models/[^/]+(/versions/[^/]+)?/rollout"
JOBS = r"/v1/models/[^/]+/inversions(/.*)?"
GRPC_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
#: Seconds in which a request that has failed at one node may still begin at another.
MARGIN_SECONDS = 5.0
RETRIES = 2
#: Of the requests in flight, repetitions may be so many per cent, or so many where that is less.
RETRY_PERCENT, LEAST_RETRIES = 5, 6
#: Lost connections or timeouts in a row that take a node out. One that refuses connections has the fewest requests in
#: flight, and is chosen until then; a busy one, whose requests wait for `try_seconds` as well, is not to be taken out.
FAILURES = 10
_TYPES = "type.googleapis.com/envoy"


@dataclass(frozen=True)
class Front:
    """How Envoy is reached, and when it loses patience.

    Attributes:
        settings: Those of the gateways: the proxy's limits follow from theirs.
        port: Where it listens for HTTP.
        grpc_port: Where it listens for gRPC; 0 for none.
        admin_port: Of its administration, on the loopback.
        address: Where it listens.
        probe_port: Where anybody may read `/ready` and `/stats/prometheus`; 0 for none.
        try_seconds: When a request that waits for its response is sent to a second node, too.
        frame_seconds: The longest silence in a stream.
        probe_seconds: How long a node may take to say that it is ready.
        heap_bytes: Memory of Envoy, beyond which it accepts no more; bodies are kept for repetitions.
    """

    settings: Settings
    port: int = 8080
    grpc_port: int = 8081
    admin_port: int = 9901
    address: str = "127.0.0.1"
    probe_port: int = 0
    try_seconds: float = 3.0
    frame_seconds: float = 30.0
    probe_seconds: float = 1.0
    heap_bytes: int = 2**30


@dataclass(frozen=True)
class Endpoint:
    """The addresses of a node."""

    host: str
    port: int
    grpc_port: int


def configuration(front: Front, folder: Path | None = None, service: str = "") -> Document:
    """Return the configuration of Envoy.

    Args:
        front: How it is reached.
        folder: Where `endpoints` are written to and read again when they change; None for names of DNS.
        service: The name, in DNS, of all nodes that are ready, instead of the folder.
    """
    listeners = [_http(front), *([_grpc(front)] if front.grpc_port else [])]
    clusters = [_cluster(front, name, folder, service) for name in ("http", "grpc")[: len(listeners)]]
    if front.probe_port:
        listeners.append(_probes(front))
        clusters.append(_administration(front))
    monitor = "envoy.resource_monitors.fixed_heap"
    heap = {
        "name": monitor,
        "typed_config": _typed("extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig")
        | {"max_heap_size_bytes": front.heap_bytes},
    }
    return {
        "node": {"id": "petrov", "cluster": "petrov"},
        "admin": {"address": _address("127.0.0.1", front.admin_port)},
        "static_resources": {"listeners": listeners, "clusters": clusters},
        "overload_manager": {
            "refresh_interval": "0.25s",
            "resource_monitors": [heap],
            "actions": [
                _action("shrink_heap", monitor, 0.9),
                _action("stop_accepting_requests", monitor, 0.95),
            ],
        },
    }


def endpoints(cluster: str, nodes: list[Endpoint], version: int) -> Document:
    """Return the file of a cluster's nodes, `CLUSTER.json` in the folder of `configuration`."""
    found = [_endpoint(cluster, node) for node in nodes]
    assignment = {"cluster_name": cluster, "endpoints": [{"lb_endpoints": found}]}
    kind = _typed("config.endpoint.v3.ClusterLoadAssignment")
    return {"version_info": str(version), "resources": [kind | assignment]}


def _endpoint(cluster: str, node: Endpoint) -> Document:
    port = node.port if cluster == "http" else node.grpc_port
    probed = {"health_check_config": {"port_value": node.port}}  # readiness is HTTP's, for gRPC as well
    return {"endpoint": {"address": _address(node.host, port), **probed}}


def _cluster(front: Front, name: str, folder: Path | None, service: str) -> Document:
    settings = front.settings
    if folder is not None:
        source = {"resource_api_version": "V3", "path_config_source": {"path": str(folder / f"{name}.json")}}
        found: Document = {"type": "EDS", "eds_cluster_config": {"eds_config": source}}
    else:
        node = Endpoint(service, settings.port, settings.grpc_port)
        names = {"cluster_name": name, "endpoints": [{"lb_endpoints": [_endpoint(name, node)]}]}
        dns = _typed("extensions.clusters.dns.v3.DnsCluster") | {"dns_refresh_rate": "2s"}
        kind = {"name": "envoy.clusters.dns", "typed_config": dns}  # every address of the name is a node
        found = {"cluster_type": kind, "load_assignment": names}
    protocol = {"http_protocol_options": {}} if name == "http" else {"http2_protocol_options": _ping(front)}
    options = _typed("extensions.upstreams.http.v3.HttpProtocolOptions") | {
        "explicit_http_config": protocol,
        # The gateway closes idle connections, too: the one who does it first loses no request.
        "common_http_protocol_options": {"idle_timeout": _seconds(KEEP_ALIVE_SECONDS - 15)},
    }
    return {
        "name": name,
        **found,
        "connect_timeout": "2s",
        "load_balancing_policy": _least_busy(),
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        "upstream_connection_options": {
            "tcp_keepalive": {"keepalive_probes": 3, "keepalive_time": 10, "keepalive_interval": 5}
        },
        "health_checks": [
            {
                "http_health_check": {"path": "/health/ready", "host": "petrov"},
                "interval": "1s",
                "no_traffic_interval": "1s",
                "timeout": _seconds(front.probe_seconds),
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
            }
        ],
        "ignore_health_on_host_removal": True,
        "common_lb_config": {
            # A model that loads nowhere makes every node unready, and the other models go on.
            "healthy_panic_threshold": {"value": 1},
            # What changes takes effect at once; waiting for more changes is for hundreds of nodes.
            "update_merge_window": "0s",
        },
        "outlier_detection": {
            "interval": "1s",
            "base_ejection_time": "2s",
            "max_ejection_time": "30s",
            "max_ejection_percent": 50,
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": FAILURES,
            "enforcing_consecutive_local_origin_failure": 100,
            **{f"enforcing_{name}": 0 for name in ("consecutive_5xx", "consecutive_gateway_failure", "success_rate")},
            "enforcing_local_origin_success_rate": 0,
        },
        "circuit_breakers": {
            "thresholds": [
                {
                    **dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 4096),
                    # Repetitions do not multiply an overload.
                    "retry_budget": {
                        "budget_percent": {"value": RETRY_PERCENT},
                        "min_retry_concurrency": LEAST_RETRIES,
                    },
                }
            ]
        },
    }


def _least_busy() -> Document:
    """Return the policy that a request goes to the node with the fewest in flight, for gRPC as well.

    Envoy's own choice between two nodes drawn at random keeps sending requests to a node that does not respond.
    """
    name = "load_balancing_policies.least_request"
    policy = _typed(f"extensions.{name}.v3.LeastRequest") | {"selection_method": "FULL_SCAN"}
    return {"policies": [{"typed_extension_config": {"name": f"envoy.{name}", "typed_config": policy}}]}


def _ping(front: Front) -> Document:
    """Return the options of HTTP/2 that find out whether the other side of a connection is still there."""
    return {"connection_keepalive": {"interval": "5s", "timeout": _seconds(2 * front.probe_seconds)}}


def _http(front: Front) -> Document:
    """Return the listener of HTTP: its routes by what may be repeated."""
    prefix = front.settings.path_prefix
    whole = {"timeout": _seconds(_longest(front)), "idle_timeout": "0s"}
    stateful = "envoy.filters.http.stateful_session"
    pure = [_match(pattern, prefix) for pattern in PURE]
    reading = [_any() | {"headers": [_header(":method", "^(GET|HEAD|OPTIONS)$")]}]
    kind = "extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute"
    jobs = {
        "match": _match(JOBS, prefix),
        "route": {"cluster": "http", **whole, "retry_policy": _retries(None, safe=False)},
        "typed_per_filter_config": {stateful: _typed(kind) | {"stateful_session": _sessions()}},
    }
    routes = [
        jobs,
        {"match": _match(STREAM, prefix), "route": {"cluster": "http", **_stream(front)}},
        *({"match": each, "route": {"cluster": "http", **whole, **_hedged(front)}} for each in [*pure, *reading]),
        {"match": _any(), "route": {"cluster": "http", **whole, "retry_policy": _retries(None, safe=False)}},
    ]
    filters = [
        {"name": stateful, "typed_config": _typed("extensions.filters.http.stateful_session.v3.StatefulSession")}
    ]
    return _listener(front, "http", front.port, routes, filters)


def _grpc(front: Front) -> Document:
    """Return the listener of gRPC: single calls are repeated, streams are resumed by the client."""
    whole = {"timeout": _seconds(_longest(front)), "idle_timeout": "0s"}
    routes = [
        {"match": {"path": GRPC_STREAM}, "route": {"cluster": "grpc", **_stream(front, ",unavailable")}},
        {"match": _any(), "route": {"cluster": "grpc", **whole, **_hedged(front, ",unavailable")}},
    ]
    return _listener(front, "grpc", front.grpc_port, routes, [])


def _listener(front: Front, name: str, port: int, routes: list[Document], filters: list[Document]) -> Document:
    prefix = front.settings.path_prefix
    # What a client says of its address or of a prefix would count at the gateways, which trust this proxy.
    headers = {"x-forwarded-for": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}
    headers |= {"x-forwarded-prefix": prefix} if prefix else {}
    says = {
        "request_headers_to_add": [
            {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for key, value in headers.items()
        ]
    } | ({} if prefix else {"request_headers_to_remove": ["x-forwarded-prefix"]})
    body = {"request_body_buffer_limit": front.settings.max_body_bytes}  # kept until the response begins
    router = {"name": "envoy.filters.http.router", "typed_config": _typed("extensions.filters.http.router.v3.Router")}
    manager = _typed("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager") | {
        "stat_prefix": name,
        "codec_type": "AUTO",
        "use_remote_address": True,  # the client is what is connected
        "http_filters": [*filters, router],
        "route_config": {
            "name": name,
            "virtual_hosts": [{"name": name, "domains": ["*"], "routes": routes, **body}],
            **says,
        },
        "stream_idle_timeout": "0s",  # each route has its own
        "request_headers_timeout": "10s",
        "drain_timeout": "5s",
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {"name": name, "address": _address(front.address, port), "filter_chains": [{"filters": filters}]}


def _hedged(front: Front, statuses: str = "") -> Document:
    return {
        "retry_policy": _retries(front.try_seconds, statuses=statuses),
        "hedge_policy": {"hedge_on_per_try_timeout": True},
    }


def _stream(front: Front, statuses: str = "") -> Document:
    """Return the options of a stream: no end but silence; what is repeated is its beginning."""
    return {"timeout": "0s", "idle_timeout": _seconds(front.frame_seconds), **_hedged(front, statuses)}


def _retries(seconds: float | None, statuses: str = "", *, safe: bool = True) -> Document:
    name = "envoy.retry_host_predicates.previous_hosts"
    elsewhere = {
        "name": name,
        "typed_config": _typed("extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
    }
    again = f"connect-failure,refused-stream,reset,retriable-status-codes{statuses}" if safe else "connect-failure"
    return {
        "retry_on": again,
        **({"retriable_status_codes": [503]} if safe else {}),
        "num_retries": RETRIES,
        **({} if seconds is None else {"per_try_timeout": _seconds(seconds)}),
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
        "retry_host_predicate": [elsewhere],
        "host_selection_retry_max_attempts": 5,
    }


def _sessions() -> Document:
    """Return what leads the requests for a job to the node that has it: a cookie, which clients keep."""
    kind = "extensions.http.stateful_session.cookie.v3.CookieBasedSessionState"
    return {
        "session_state": {
            "name": "envoy.http.stateful_session.cookie",
            "typed_config": _typed(kind) | {"cookie": {"name": "petrov-node", "path": "/"}},
        }
    }


def _probes(front: Front) -> Document:
    """Return a listener with those two pages of the administration that change nothing."""
    routes = [{"match": {"path": path}, "route": {"cluster": "admin"}} for path in ("/ready", "/stats/prometheus")]
    return _listener(front, "probes", front.probe_port, routes, [])


def _administration(front: Front) -> Document:
    address = {"endpoint": {"address": _address("127.0.0.1", front.admin_port)}}
    found = {"cluster_name": "admin", "endpoints": [{"lb_endpoints": [address]}]}
    return {"name": "admin", "type": "STATIC", "load_assignment": found}


def _longest(front: Front) -> float:
    return front.settings.request_seconds + MARGIN_SECONDS


def _match(pattern: str, prefix: str) -> Document:
    before = f"({re.escape(prefix)})?" if prefix else ""
    return {"safe_regex": {"regex": f"{before}{pattern}"}}


def _any() -> Document:
    return {"prefix": "/"}


def _header(name: str, pattern: str) -> Document:
    return {"name": name, "string_match": {"safe_regex": {"regex": pattern}}}


def _address(host: str, port: int) -> Document:
    return {"socket_address": {"address": host, "port_value": port}}


def _action(name: str, trigger: str, value: float) -> Document:
    return {
        "name": f"envoy.overload_actions.{name}",
        "triggers": [{"name": trigger, "threshold": {"value": value}}],
    }


def _seconds(seconds: float) -> str:
    return f"{seconds:g}s"


def _typed(name: str) -> Document:
    return {"@type": f"{_TYPES}.{name}"}


def of_kubernetes() -> str:
    """Return the file that the manifests mount."""
    # The defaults of the gateway, not the variables of this process.
    front = Front(Settings.model_construct(), address="0.0.0.0", probe_port=9902)  # noqa: S104 - a pod's network
    document = configuration(front, service="petrov-nodes")
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    MANIFEST.parent.mkdir(parents=True, exist_ok=True)
    MANIFEST.write_text(of_kubernetes())
