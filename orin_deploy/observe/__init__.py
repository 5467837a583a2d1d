"""Measuring what runs."""
