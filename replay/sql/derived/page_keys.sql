-- page_keys: one row for each DRAM page that was allocated in this stretch of the log: what page it is.
--
-- space, key   null: the page was bound to its number before this stretch begins
CREATE TABLE page_keys AS
SELECT a.stretch, a.generation, k.space, k.key
FROM buffers_allocated a
ASOF LEFT JOIN pages_bound k ON k.stretch = a.stretch AND k.page = a.page AND k.fact <= a.fact;
