"""A continuous-batching scheduler for LLM inference that is verified."""
