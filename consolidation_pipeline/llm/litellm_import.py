"""The import of litellm: offline, without output and without retries of its own."""

import os
from functools import cache
from typing import Any


@cache
def load_litellm() -> Any:
    """Import litellm and return it. It takes seconds: call this before starting threads that use it."""
    # Without this, the import fetches a price list from the internet.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False
    litellm.disable_hf_tokenizer_download = True  # counting tokens must not download a tokenizer either
    litellm.suppress_debug_info = True  # hints would go to standard output, where --json writes
    litellm.DEFAULT_MAX_RETRIES = 0  # used if max_retries=0 counts as "not given", as for OpenAI
    return litellm
