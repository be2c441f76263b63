"""Scheduling: which tokens run in the next step, and what becomes of the results.

Owns ids, counts and plain records. Knows neither torch nor transformers, and no model.
"""
