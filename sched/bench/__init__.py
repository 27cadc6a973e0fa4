"""What `batchproof bench` measures, one file per subject."""
