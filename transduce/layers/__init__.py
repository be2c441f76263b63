"""Layers that models compose: attention, norm, embedding, relative bias. They know no model, no scheduler."""
