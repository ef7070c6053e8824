"""WebShop: buy the product that fits an instruction."""

from agentgym.envs.webshop.env import WebShopEnv

__all__ = ["WebShopEnv"]
