"""The waste stage: input that was sent and paid for without need.

Belongs here, one module per mart: prompt prefixes sent again (`repetition.py`), the hit ratio that a cache
of a given size would reach (`cache_curve.py`), prompts far larger than is usual (`oversize.py`), failed
attempts (`retries.py`); what follows from them (`findings.py` and the modules of its kinds), and what that saves net of
each other (`net_savings.py`, `apply_changes.py`). Shared by them: which calls count and
how strong their evidence is (`evidence.py`), prefix blocks as flat arrays (`blocks.py`, `block_kernels.py`),
the providers' dated rules (`caching_rules.py`), prices per call (`row_prices.py`), names of scopes
(`scopes.py`).
Does not belong here: price tables, cost lines, hardware, charts, and any text of a prompt.

Counts and money hold for served calls (ok, cancelled) whose input is known and which the gateway did not
answer from its own cache. Money comes from exact prefixes only; what is estimated from sessions carries
tokens and no money.
"""
