"""TinyTPU's acceptance behaviours as tables: rows by the datasheet's areas (section 12), each checked by its own means.

A module holds the tables of an area; `areas` knows how many checks an area has to have; `table` runs rows. The tests
in tinytpu/acceptance run them, the coverage page counts them.
"""
