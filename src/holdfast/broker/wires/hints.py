"""Fields of a question that change no word of it: who asks, how to cache, how hard to think, at which price. They are
meant for the provider that they were sent to, and are left away for another one."""

COMMON = frozenset({"metadata", "service_tier", "user"})

CHAT = COMMON | {
    *("chat_template_kwargs", "enable_thinking", "prediction", "prompt_cache_key", "prompt_cache_retention"),
    *("provider", "reasoning", "reasoning_effort", "safety_identifier", "seed", "store", "thinking", "tool_stream"),
    *("usage", "verbosity"),
}
RESPONSES = COMMON | {
    *("client_metadata", "context_management", "prompt_cache_key", "prompt_cache_retention", "reasoning"),
    *("safety_identifier", "store", "stream_options", "truncation"),
}
MESSAGES = COMMON | {"cache_control", "context_management", "diagnostics", "speed", "thinking", "user_profile_id"}
GEMINI = frozenset({"labels", "safetySettings", "serviceTier"})
GEMINI_SETTINGS = frozenset({"mediaResolution", "seed", "thinkingConfig"})
