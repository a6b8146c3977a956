"""The import of litellm: offline, without output and retries of its own. Also what it knows of a model by its name."""

import os
import warnings
from functools import cache
from typing import Any


@cache
def load_litellm() -> Any:
    """Import litellm and return it. It takes seconds: call this before starting threads that use it."""
    # Without this, the import fetches a price list from the internet.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    # It reads vectors in base64 into a class whose vectors are lists, and copies that class by pydantic.
    warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)
    litellm.telemetry = False
    litellm.disable_hf_tokenizer_download = True  # counting tokens must not download a tokenizer either
    litellm.suppress_debug_info = True  # hints would go to standard output, where --json writes
    litellm.DEFAULT_MAX_RETRIES = 0  # used if max_retries=0 counts as "not given", as for OpenAI
    return litellm


def find_missing_keys(model: str) -> list[str]:
    """Return the environment variables that litellm expects for a model and that are not set or blank.

    Keys may also come from elsewhere, such as the profile of a cloud's own tools.
    """
    missing: list[str] = load_litellm().validate_environment(model)["missing_keys"]
    if not missing and has_provider(model):
        # A variable that is set but blank is enough for litellm.
        key = f"{load_litellm().get_llm_provider(model)[1].upper()}_API_KEY"
        return [] if os.environ.get(key, key).strip() else [key]
    return missing


def has_provider(model: str) -> bool:
    """Return True if litellm knows to which provider requests for a model are sent."""
    try:
        return bool(load_litellm().get_llm_provider(model))
    except Exception:  # litellm raises a BadRequestError without a request
        return False
