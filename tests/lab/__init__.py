"""The lab: an aarch64 virtual Jetson that really boots, under qemu's emulation.

`scripts/lab` is its entry. `python -m tests.lab` makes kernel, root file system and device trees from Debian packages,
boots boards from them and runs the checks in `checks`. What runs inside a board is in `guest`.
"""
