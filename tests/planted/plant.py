"""Call one planted bug: plant.py <library> <name> <0 or 1>; with 1 the process must not live."""

import ctypes
import sys

library, name, bug = sys.argv[1], sys.argv[2], int(sys.argv[3])
function = getattr(ctypes.CDLL(library), f"qfw_planted_{name}")
if name == "over_read":
    heap = (ctypes.c_uint8 * 64)()
    function(heap, ctypes.c_size_t(len(heap)), bug)
else:
    function(bug)
