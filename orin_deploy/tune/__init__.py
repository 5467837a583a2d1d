"""Tune: choosing by measurement what no formula tells."""
