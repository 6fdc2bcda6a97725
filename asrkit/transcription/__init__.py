"""Decoding of many recordings: batches, workers and output."""
