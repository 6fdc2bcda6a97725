"""Mutated inputs of every kind that asrkit reads, each in a process with limits: make torture."""
