"""Errors of the project.

    ConsolidationError
    ├── UsageError                  the input cannot work                         exit code 2
    │   ├── InvalidOptionError      an option is unknown or out of range
    │   ├── InvalidMemoryError      a memory cannot be stored as it is
    │   ├── NotFoundError           a project, job, change or memory does not exist
    │   ├── InvalidScopeError       a run was requested for an unknown phase or memory type
    │   ├── ProjectDisabledError    consolidation is disabled for the project
    │   ├── ForbiddenError          the memory is another writer's
    │   └── InvalidWebhookError     the webhook address is not allowed
    ├── ConflictError               the stored state is not the expected one      exit code 3
    │   ├── ProjectBusyError        another run holds the project
    │   ├── ExpiredError            the change is too old to be undone
    │   ├── UnrecordedWritesError   a store hides rows by writes that this database does not know
    │   └── JobEndedError           another run did the job or took it over
    │       └── JobCancelledError   the job was cancelled
    ├── BudgetExhaustedError        a budget is used up                           exit code 4
    ├── EmbeddingError              the embedding model gave no usable vector
    ├── LLMError                    the language model gave no usable reply       exit code 5
    │   ├── InvalidReplyError       the reply is invalid, even after one repair
    │   ├── AttemptsExhaustedError  a prompt was sent as often as one job may send it
    │   ├── MissingReplyError       a replay needs a reply that is not stored
    │   └── ModelUnavailableError   the model takes no requests, or failed too often in a row
    ├── TimeLimitError              a run takes longer than allowed
    ├── TooManyPairsError           too many similar pairs to be stored
    └── StoreError                  the database cannot be reached or is not ready
        └── SchemaOutOfDateError    the schema is older or newer than this program

Without a code here the exit code is 1. Messages name the thing, the value and what would be right.
"""

import re


class ConsolidationError(Exception):
    """Base of all errors of the project. ``exit_code``: exit code of the command line."""

    exit_code = 1


class UsageError(ConsolidationError):
    """The input cannot work."""

    exit_code = 2


class InvalidOptionError(UsageError):
    """An option is unknown or out of range."""


class InvalidMemoryError(UsageError):
    """A memory cannot be stored as it is."""


class NotFoundError(UsageError):
    """A project, job, change or memory does not exist."""


class InvalidScopeError(UsageError):
    """A run was requested for an unknown phase or memory type."""


class ProjectDisabledError(UsageError):
    """Consolidation is disabled for the project."""


class ForbiddenError(UsageError):
    """The caller may not change the memory: another writer wrote it."""


class InvalidWebhookError(UsageError):
    """The webhook address is not allowed. The message contains neither the URL's path nor the secret."""


class ConflictError(ConsolidationError):
    """The stored state is not the expected one.

    ``conflicts``: ids of the rows that differ. ``listed``: lines that tell of them, with which the message ends.
    """

    exit_code = 3

    def __init__(self, message: str, conflicts: tuple[str, ...] = (), listed: tuple[str, ...] = ()) -> None:
        super().__init__(" ".join([message, *filter(None, ["; ".join(listed)])]))
        self.headline, self.conflicts, self.listed = message, conflicts, listed


class ExpiredError(ConflictError):
    """The change is too old to be undone."""


class UnrecordedWritesError(ConflictError):
    """A connected store hides rows by writes that are not recorded here. A person has to show them again."""


class ProjectBusyError(ConflictError):
    """Another run holds the project."""


class JobEndedError(ConflictError):
    """Another run did or took over the job. This run writes nothing, or nothing more."""


class JobCancelledError(JobEndedError):
    """The job was cancelled. Its run writes nothing more."""


class BudgetExhaustedError(ConsolidationError):
    """A budget is used up."""

    exit_code = 4


class EmbeddingError(ConsolidationError):
    """The embedding model gave no usable vector."""


class LLMError(ConsolidationError):
    """The language model gave no usable reply."""

    exit_code = 5


class InvalidReplyError(LLMError):
    """The reply of the model is invalid, and its repair too.

    ``is_readable``: the last one has the form that was asked for, and what it says was refused.
    """

    def __init__(self, message: str, *, is_readable: bool = False) -> None:
        super().__init__(message)
        self.is_readable = is_readable


class AttemptsExhaustedError(LLMError):
    """A prompt was sent as often as one job may send it."""


class MissingReplyError(LLMError):
    """A replay needs a reply that is not stored. It sends no prompt."""


class ModelUnavailableError(LLMError):
    """The model takes no requests, or failed for many prompts in a row: it is not asked again."""


class TimeLimitError(ConsolidationError):
    """A run made no progress for ``timeout_seconds``. No further phase of it starts."""


class TooManyPairsError(ConsolidationError):
    """A project has too many similar pairs to be stored."""


class StoreError(ConsolidationError):
    """The database cannot be reached or is not ready."""


class SchemaOutOfDateError(StoreError):
    """The schema is older than this program (run ``consolidation init``) or newer (upgrade the program)."""


def error_kind(error: Exception) -> str:
    """Return the name of an error for programs: its class in snake case, ``NotFoundError`` is ``not_found``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()
