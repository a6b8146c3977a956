"""Language models through litellm, with a budget, retries, a reply cache and checks of every reply.

This file imports nothing, so that embedding models import only budget, retries and litellm.
"""
