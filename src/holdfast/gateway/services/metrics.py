"""What is counted of services. Names are those of images, which the operator allows; no label comes from a request."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class ServiceMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.ready = Gauge("holdfast_services_ready", "Services of sessions that are ready", registry=registry)
        self.started = Counter("holdfast_services_started", "Services that were started", registry=registry)
        self.stopped = Counter(
            "holdfast_services_stopped", "Services that were stopped, or ended", ("why",), registry=registry
        )
        self.failed = Counter("holdfast_services_failed", "Services that failed", ("why",), registry=registry)
        self.start_seconds = Histogram(
            "holdfast_service_start_seconds",
            "From the start of a service to its first answer.",
            buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
            registry=registry,
        )
