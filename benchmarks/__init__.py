"""Speed, measured beside others' in the same run. Needs the extra `bench`; no part of the `transduce` wheel.

    python -m benchmarks.table      tokens per second: batches, long sources, a mixed stream
    python -m benchmarks.curves     tokens per second against batch and against context
    python -m benchmarks.roofline   one decode step and one encoder pass, against what the machine allows
    python -m benchmarks.speech     audio seconds per second
    python -m benchmarks.serving    latency of a server under Poisson arrivals
    python -m benchmarks.startup    from process start to the first token
    python -m benchmarks.attention  one attention layer, per backend
    python -m benchmarks.accuracy   what a quantization costs, on trained checkpoints

Every engine runs in a process of its own (`worker`), which sleeps while another is timed. Rounds alternate and each
draws inputs anew (`contest`); a peer runs at the best of what it lets its users set (`sweep`).
"""
