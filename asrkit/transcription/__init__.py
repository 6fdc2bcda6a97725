"""Many recordings to text: batches, shards, workers, and what is written of them."""
