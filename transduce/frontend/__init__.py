"""The frontend: prompts, media and parameters in, Requests out; token ids in, text and results out.

Everything that knows text lives here; the engine below speaks token ids. Knows no tensor and no model family.
"""
