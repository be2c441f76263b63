"""The requests and responses of the API, one module for each family of routes.

Requests are pydantic models, strict about what they hold. Responses are typed dicts: they are built for every token.
"""
