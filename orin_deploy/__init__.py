"""Deploys and tunes llama.cpp on NVIDIA Jetson boards."""

__version__ = "0.1.0"
