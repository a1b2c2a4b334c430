"""The example week: logs of a company that does not exist, and the truth about everything planted in them.

`company.py` says who exists, `traffic.py` when they call and how much, `sessions.py` what is sent again and
again, `incidents.py` what goes wrong, `prompts.py` what the messages hold, `gateway_log.py` and
`telemetry.py` how it is logged, `tally.py`, `planted.py` and `truth.py` what a correct reader must find,
`week.py` writes the folder. Reading logs does not belong here.
"""
