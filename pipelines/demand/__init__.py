"""Token demand: when tokens were worked on, how much at once, and when most.

Belongs here: `coverage` (what part of the window has data), `spread` (the time each call was worked on),
`sweep` (curves over time and their maxima), `series` (demand per minute), `peaks` (sliding-window maxima), and the
`profile` of what a rate does not tell: `burstiness`, `joint` lengths, `rhythm` and growth, `peak_confidence`, `unmet`
calls, demand by engines' `counters`. Does not belong here: what hardware could carry it (`sizing`), whether
it was needed (`waste`), what it cost (`costs`).

Demand is what an engine or a provider worked on: calls with status ok or cancelled that the gateway did not
answer from its own cache. Failed calls carry no tokens. Null is unknown: a sum over partly known calls is a
lower bound and says so.
"""
