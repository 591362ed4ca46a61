"""These tests need arm-none-eabi-gcc, QEMU and make: without them there are none."""

from shutil import which

TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm", "make")
collect_ignore_glob = [] if all(map(which, TOOLS)) else ["test_*.py"]
