"""CPU kernels in C++ and their typed Python face; tensors in, tensors out, by address.

`build` compiles them, `load` finds those for this CPU; the other modules declare one kernel's signature each.
Without them (no compiler at install) `load.library()` is None and callers use torch.
"""
