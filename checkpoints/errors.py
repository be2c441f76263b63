"""The one exception of this package."""


class CheckpointError(Exception):
    """A checkpoint cannot be had; the message is one line and says the way out."""
