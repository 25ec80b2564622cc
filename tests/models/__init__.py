"""Models of the kernel that share nothing with it: they know the vocabulary and the contract alone.

Nothing here may import `orbitkv.manager`; import-linter keeps it so. They are slow and obvious on purpose.
"""
