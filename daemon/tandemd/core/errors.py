"""The errors that the core raises.

CoreError
+-- UnknownJobError         no such job (any more)
+-- UnknownPolicyError      no policy of that name
+-- NeverFitsError          asks for more memory than the GPU has
+-- IllegalTransitionError  a bug: the event cannot happen in this state
"""


class CoreError(Exception):
    """Root of everything the core raises."""


class UnknownJobError(CoreError):
    """The job does not exist, or was forgotten."""


class UnknownPolicyError(CoreError):
    """No policy has that name."""


class NeverFitsError(CoreError):
    """It would not fit, even alone. Jobs that only have to wait for others get no error."""


class IllegalTransitionError(CoreError):
    """The event cannot happen in the job's state; the text carries the job's story."""
