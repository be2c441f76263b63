"""Encoder and decoder stacks that families share. They know no checkpoint names and no family."""
