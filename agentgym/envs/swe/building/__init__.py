"""Tasks out of a project: bugs put in (`build`, `mutations`), or real changes undone (`mine`, `history`, `changes`).

Both try candidates in a fixed order (`candidates`) and say the task in words (`statements`).
"""
