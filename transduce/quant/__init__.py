"""Weight schemes: how a linear layer stores and multiplies its weight."""
