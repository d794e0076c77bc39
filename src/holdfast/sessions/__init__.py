"""Sessions: their states, the service that acts on them, and the reconciler that compares rows with facts."""
