"""Every exception Transduce raises on purpose.

    TransduceError
    ├── ConfigError        an engine argument, flag or environment variable that cannot work
    │   └── CheckpointError    a model folder that cannot be loaded
    ├── RequestError       one request's input; the other requests go on
    │   ├── MediaError         audio or images that cannot be read
    │   └── CapacityError      a request that can never fit, with the numbers
    └── EngineError        a step failed; the requests in it are lost
        └── EngineDeadError    the engine's process ended, and with it all its requests

A message names the value that was refused and the way out.
"""


class TransduceError(Exception):
    """Base of all exceptions raised on purpose."""


class ConfigError(TransduceError, ValueError):
    """An engine argument, flag or environment variable that cannot work."""


class CheckpointError(ConfigError):
    """A model folder that cannot be loaded: a missing file, an unknown or misshapen tensor."""


class RequestError(TransduceError, ValueError):
    """One request's input is wrong; other requests are not affected."""


class MediaError(RequestError):
    """Audio or images that cannot be read."""


class CapacityError(RequestError):
    """A request that can never fit the engine's memory or limits, with the numbers."""


class EngineError(TransduceError, RuntimeError):
    """A step failed; the requests that were part of it are lost, later ones are served."""


class EngineDeadError(EngineError):
    """The engine's process is not there: it ended and is being restarted, or was shut down, or never started."""
