"""Real engines on batchproof's scheduler, one file each; none is imported unless asked for."""
