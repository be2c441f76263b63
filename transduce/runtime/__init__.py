"""Running a plan: loading, memory layout, step inputs, graphs, sampling."""
