"""litellm, imported in one place: offline, silent and without retries of its own."""

import os
from functools import cache
from typing import Any


@cache
def load_litellm() -> Any:
    """The module; its import takes seconds, so the first call should not be made by several threads at once."""
    # Without this, the import itself fetches a price list from the internet.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False
    litellm.disable_hf_tokenizer_download = True  # counting tokens must not download a tokenizer either
    litellm.suppress_debug_info = True  # else hints are printed on standard output, where --json writes
    litellm.DEFAULT_MAX_RETRIES = 0  # taken where max_retries=0 is read as "not given", as for OpenAI
    return litellm
