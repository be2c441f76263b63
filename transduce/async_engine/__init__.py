"""The engine in a process of its own, and one asynchronous stream of outputs for each request.

    AsyncLLM ──Add, Finish, Abort──▶ worker ──▶ Engine
       ▲                               │
       └──────── Step ◀────────────────┘      one message a step at most

Prompts and text stay in the calling process; requests, token ids and numbers cross. Knows no HTTP.
"""
