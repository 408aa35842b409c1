"""From a kernel and its arguments to results, or to compiled programs.

Begin with `nki.driver.call`: one call of a kernel, top to bottom. `prepare` says what the call is, `compile` finds or
makes its programs, `execute` runs them. `measure` compiles without running, and `frameworks` says whose call it is.
"""
