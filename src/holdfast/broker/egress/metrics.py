"""The metrics of the egress proxy: how much was transferred, and how often something was refused."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class EgressMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.open = Gauge("holdfast_egress_connections", "Connections of sandboxes to the proxy.", registry=registry)
        self.requests = Counter(
            "holdfast_egress_requests_total",
            "Requests to the proxy, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        self.bytes = Counter(
            "holdfast_egress_bytes_total", "Bytes through the proxy, by direction.", ["direction"], registry=registry
        )
        self.sent = self.bytes.labels("out")
        self.received = self.bytes.labels("in")
