"""From a kernel and its arguments to results, or to compiled programs.

Begin with `nki.driver.call`: one call of a kernel, top to bottom.
"""
