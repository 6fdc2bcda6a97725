"""Decoding of many recordings: batches, shards, workers and output."""
