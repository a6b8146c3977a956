"""Every error the project raises on purpose.

    ConsolidationError
    ├── UsageError                  the caller gave something that cannot work      exit code 2
    │   ├── InvalidOptionError      an option is unknown or out of its range
    │   ├── InvalidMemoryError      a memory cannot be stored as it is
    │   ├── NotFoundError           a project, job, change or memory does not exist
    │   ├── InvalidScopeError       a run was asked for over something that there is not
    │   ├── ProjectDisabledError    consolidation is switched off for the project
    │   └── InvalidWebhookError     events cannot be sent where the environment says
    ├── ConflictError               the stored state is not the one expected        exit code 3
    │   ├── ProjectBusyError        another run holds the project
    │   ├── ExpiredError            it is too long ago to be undone
    │   └── JobEndedError           the job was ended while its run went on
    │       └── JobCancelledError   somebody cancelled it
    ├── BudgetExhaustedError        the spend cap is reached                        exit code 4
    ├── EmbeddingError              the embedding model gave no usable vector
    ├── LLMError                    the language model gave no usable reply
    │   ├── InvalidReplyError       what it said is not what was asked for, after one repair
    │   ├── AttemptsExhaustedError  a prompt was sent as often as one job may send it
    │   └── ModelUnavailableError   it failed so often in a row that it is not asked again
    ├── TimeLimitError              a run takes longer than it may
    ├── TooManyPairsError           too many similar pairs to be stored
    └── StoreError                  the database cannot be reached or is not ready
        └── SchemaOutOfDateError    migrations are missing: run `consolidation init`

Messages name the thing, the value and what would be right.
"""

import re


class ConsolidationError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the CLI ends with."""

    exit_code = 1


class UsageError(ConsolidationError):
    """The caller gave something that cannot work."""

    exit_code = 2


class InvalidOptionError(UsageError):
    """An option is unknown or out of its range."""


class InvalidMemoryError(UsageError):
    """A memory cannot be stored as it is."""


class NotFoundError(UsageError):
    """A project, job, change or memory does not exist."""


class InvalidScopeError(UsageError):
    """A run was asked for over something that there is not: a phase, a memory type."""


class ProjectDisabledError(UsageError):
    """Consolidation is switched off for the project."""


class InvalidWebhookError(UsageError):
    """Events cannot be sent where the environment says; the message holds neither the URL's path nor the secret."""


class ConflictError(ConsolidationError):
    """The stored state is not the one expected; ``conflicts`` lists what differs."""

    exit_code = 3

    def __init__(self, message: str, conflicts: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.conflicts = conflicts


class ExpiredError(ConflictError):
    """It is too long ago to be undone."""


class ProjectBusyError(ConflictError):
    """Another run holds the project."""


class JobEndedError(ConflictError):
    """The job was ended while its run went on, which writes nothing more: another run took over."""


class JobCancelledError(JobEndedError):
    """Somebody cancelled the job: its run writes nothing more."""


class BudgetExhaustedError(ConsolidationError):
    """The spend cap is reached."""

    exit_code = 4


class EmbeddingError(ConsolidationError):
    """The embedding model gave no usable vector."""


class LLMError(ConsolidationError):
    """The language model gave no usable reply."""


class InvalidReplyError(LLMError):
    """What the model said is not what was asked for, and its one repair is not either."""


class AttemptsExhaustedError(LLMError):
    """A prompt was sent as often as one job may send it."""


class ModelUnavailableError(LLMError):
    """A model failed so often in a row that it is not asked again."""


class TimeLimitError(ConsolidationError):
    """A run takes longer than ``timeout_seconds``: no further phase of it begins."""


class TooManyPairsError(ConsolidationError):
    """A project has more similar pairs than can sensibly be stored."""


class StoreError(ConsolidationError):
    """The database cannot be reached or is not ready."""


class SchemaOutOfDateError(StoreError):
    """Migrations are missing: run ``consolidation init``."""


def error_kind(error: Exception) -> str:
    """The class in snake case without its ending, for programs: ``NotFoundError`` is ``not_found``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()
