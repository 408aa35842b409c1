"""Routing of tokens to experts."""

from nkilib.core.router_topk.router_topk import (
    XHBMLayout_H_T__0,
    XHBMLayout_T_H__1,
    XSBLayout__128_Hdiv128_T__3,
    XSBLayout_tp102__0,
    XSBLayout_tp201__2,
    XSBLayout_tp2013__1,
    router_topk,
    router_topk_input_w_load,
    router_topk_input_x_load,
)

__all__ = [
    "XHBMLayout_H_T__0",
    "XHBMLayout_T_H__1",
    "XSBLayout__128_Hdiv128_T__3",
    "XSBLayout_tp102__0",
    "XSBLayout_tp201__2",
    "XSBLayout_tp2013__1",
    "router_topk",
    "router_topk_input_w_load",
    "router_topk_input_x_load",
]
