"""The server: OpenAI's API over HTTP, on an AsyncLLM. `transduce.server.serve.serve` runs it."""
