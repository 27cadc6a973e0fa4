"""A server over the scheduler: an OpenAI-compatible endpoint."""
