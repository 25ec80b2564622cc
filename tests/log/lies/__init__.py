"""Lies that are told in true logs, by what they are about: each names the record that a judge must name.

`story` has the stories and how they are changed, `judges` those who judge, `real` a manager's own log,
`sweep` alters every field there is, `damage` and `order` bytes and frames. All others hold `LIES`.
"""
