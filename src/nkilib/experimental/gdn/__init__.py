"""Gated delta rule: linear attention whose state forgets, and corrects what it holds."""

from nkilib.experimental.gdn.gdn_cte import gdn_cte

__all__ = ["gdn_cte"]
