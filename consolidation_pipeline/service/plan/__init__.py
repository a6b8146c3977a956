"""Plans: the changes that a run would make, as a document that can be read, saved and applied.

A plan is made by the functions of a run, in read-only transactions, so that the database refuses writes. When it is
applied, it is made again from the data of that moment, and refused if its decisions differ.
"""
