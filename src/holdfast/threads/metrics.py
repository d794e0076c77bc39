"""What an operator watches of threads: what it took to reach their sandboxes, and how their turns end."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class ThreadMetrics:
    """Counters of this daemon since it started."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.creates = Counter(
            "holdfast_thread_sandbox_creates_total",
            "Sandboxes made for threads: created the first, recreated one that was gone.",
            ["how"],
            registry=registry,
        )
        self.resumes = Counter(
            "holdfast_thread_sandbox_resumes_total", "Sandboxes of threads woken from sleep.", registry=registry
        )
        self.replaced = Counter(
            "holdfast_thread_session_replacements_total",
            "Agent sessions that were lost and replaced by one that knows the history.",
            registry=registry,
        )
        self.health_retries = Counter(
            "holdfast_thread_health_retries_total",
            "Times that a sandbox or its agent could not be reached and was tried again.",
            registry=registry,
        )
        self.prompt_retries = Counter(
            "holdfast_thread_prompt_retries_total", "Prompts that were given to an agent once more.", registry=registry
        )
        self.takeovers = Counter(
            "holdfast_thread_takeovers_total", "Turns of another, or an earlier, daemon taken over.", registry=registry
        )
        self.leases_lost = Counter(
            "holdfast_thread_leases_lost_total", "Threads that another daemon took from this one.", registry=registry
        )
        self.turns_ended = Counter(
            "holdfast_thread_turns_ended_total", "Turns that ended, by reason.", ["reason"], registry=registry
        )
        self.turns_running = Gauge(
            "holdfast_thread_turns_running", "Turns that this daemon is at work on.", registry=registry
        )
        self.resolve_seconds = Histogram(
            "holdfast_thread_resolve_seconds",
            "From the wish to talk to a thread until its agent is ready.",
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        self.turn_seconds = Histogram(
            "holdfast_thread_turn_seconds",
            "From the beginning of a turn to its end.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 21600),
            registry=registry,
        )
