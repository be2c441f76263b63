"""Media as clients send it, turned into arrays: audio, images, and what may be fetched. Knows no model."""
