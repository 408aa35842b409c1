"""The output projection for many tokens, under its documented name."""

from nkilib.core.output_projection.output_projection_cte.output_projection_cte import output_projection_cte

__all__ = ["output_projection_cte"]
