"""Attention kernels for NVIDIA GPUs."""
