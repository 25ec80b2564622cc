"""A log as tables in DuckDB: its facts as they are, and tables derived from them.

Exists so that questions about a log are SQL. Must not know the kernel: what the tables say comes from the
log alone, so that SQL can contradict the kernel. Reading never changes a log. However long it is, loading
keeps a bounded part of it in memory; DuckDB puts on disk what exceeds its own share.
"""

from replay.warehouse.database import WarehouseError as WarehouseError
from replay.warehouse.database import sql_text as sql_text
from replay.warehouse.loading import Loaded as Loaded
from replay.warehouse.loading import Warehouse as Warehouse
from replay.warehouse.loading import load_log as load_log
from replay.warehouse.loading import load_logs as load_logs
