"""Decoding of many recordings: batches, engines and output."""
