"""Replay of arrivals through a simulated continuous-batching engine: what every call of a trace would have
waited, on hardware that need not exist.

Belongs here: the engine's rules (`kernel.py`), time of a step in the kernel's terms (`step_terms.py`), one
run (`simulate.py`), traces (`workload.py`), what a run tells (`summary.py`), the command (`command.py`). Does
not belong here: the physics of a step (`pipelines/sizing/roofline.py`), which hardware to try (`options.py`).
"""
