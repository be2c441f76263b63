"""Layers that models compose: linear, attention, norm, embedding, relative bias. They know no model, no scheduler."""
