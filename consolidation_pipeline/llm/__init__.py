"""Language models through litellm, with a budget, retries, a reply cache and checks of every reply.

This package imports nothing: embedding models need its budget, retries and litellm only, and start-up stays short.
"""
