"""Judging a web page by using it: the task format, what an assert holds, and the score.

The browser that uses the page is `agentgym.verifiers.browser`.
"""
