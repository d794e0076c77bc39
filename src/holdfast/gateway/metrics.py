"""What the gateway counts. No label comes from a request."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class GatewayMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.entered = Counter("holdfast_gateway_entered", "Visitors let in", ("by",), registry=registry)
        self.requests = Counter("holdfast_gateway_requests", "Requests carried into sandboxes", registry=registry)
        self.refused = Counter("holdfast_gateway_refused", "Requests refused", ("code",), registry=registry)
        self.open = Gauge("holdfast_gateway_open", "Requests and WebSockets under way", registry=registry)
