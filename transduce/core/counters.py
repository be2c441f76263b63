"""Counters: what a scheduler has done so far. Knows no metric by name."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What has happened so far. drafts: verified; drafted, accepted: their tokens, and those that were right."""

    prompt_tokens: int = 0
    encoded_rows: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    finished: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
