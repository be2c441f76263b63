"""`transduce bench`: a server under load, and the offline API timed.

Owns data sets, load, and what is computed of recorded times. Servers are reached by HTTP alone, so any that speaks
OpenAI's completions or transcriptions can be measured. How Transduce compares with its peers is not measured here.
"""
