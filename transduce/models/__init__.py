"""Model families: one module or package each, named after config.json's `model_type`, found by import."""
