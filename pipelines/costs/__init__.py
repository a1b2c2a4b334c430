"""What the tokens cost: one line of money per day, payer, model and meter, and totals that add up to the last
digit.

Belongs here: which basis a call is priced on, splitting and allocating money exactly, totals, comparisons
with list prices. Prices themselves and their dates are `warehouse/prices.py`; exports (FOCUS, sheets) are
`reports/`.
"""
