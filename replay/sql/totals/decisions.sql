-- The decision ledger of each incarnation, in pages: what demands were answered with, and what hints saw.
--
-- `unjudged` were opened before the log begins.
SELECT s.incarnation, d.kind,
    count(*) AS decisions, sum(asked) AS asked, sum(dram) AS dram, sum(peer) AS peer, sum(ssd) AS ssd,
    sum(miss) AS miss, count(*) FILTER (NOT d.known) AS unjudged
FROM (
    SELECT e.stretch, 'demand' AS kind, e.asked, e.dram, e.peer, e.ssd, e.miss, o.known IS TRUE AS known
    FROM decision_settled e
    LEFT JOIN operations o ON o.stretch = e.stretch AND o.operation = e.operation AND o.kind = 'demand'
    UNION ALL
    SELECT stretch, 'warm', asked, dram, peer, ssd, miss, true FROM warm_probed
) d
JOIN stretches s USING (stretch)
GROUP BY ALL
ORDER BY s.incarnation, d.kind;
