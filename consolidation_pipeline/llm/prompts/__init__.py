"""The prompts, one module each: wording, version, schema of the reply and checks of it.

The JSON schema of a reply is sent to the model and is part of the cache key. It has the class name, the docstring and
the field descriptions of the reply class: changing one of them needs a new ``VERSION`` too.
"""
