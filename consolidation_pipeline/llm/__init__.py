"""Language models, through litellm: within a budget, retried, cached and with checked replies only.

Empty on purpose: embedding models need the ladder, the budget and litellm from here, and nothing else at start-up.
"""
