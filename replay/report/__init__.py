"""A log as one HTML file with pictures, for whoever has to know at once how it went.

`python -m replay report LOG -o report.html`. All figures come from the warehouse, by the SQL in `sql/`; what
is right and what is not is said by the audit. Must not know the kernel, and its page must never reach for
the network.
"""
