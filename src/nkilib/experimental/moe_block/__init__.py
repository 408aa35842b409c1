"""What stands before the experts of a mixture: norm and router in one."""

from nkilib.experimental.moe_block.rmsnorm_router_topk_tkg import rmsnorm_router_topk_tkg

__all__ = ["rmsnorm_router_topk_tkg"]
