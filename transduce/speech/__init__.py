"""Long audio: what to ask the engine next, and what its answers mean. Yields Requests, takes Outputs, does no I/O."""
