"""Git over HTTPS for sandboxes: programs there fetch and push without a token, which the broker adds on the host."""
