"""What a run would do, group by group, before it does it: a plan can be read, kept in a file and applied.

A plan is made in read-only transactions on the functions that a run is made of, so the database itself sees to it that
nothing is written. Applied, it is made once more from what is there then, and refused where the two differ.
"""
