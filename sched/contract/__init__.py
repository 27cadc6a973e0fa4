"""Tests that anybody's scheduler can be put to: what `batchproof.testing` is made of."""
