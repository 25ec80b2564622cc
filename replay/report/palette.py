"""One colour for each thing, in every picture of the report, readable on light and on dark paper."""

TIERS = {"dram": "#1a9c86", "peer": "#9a6fc8", "ssd": "#3f86d0", "miss": "#98a2ae"}
ORIGINS = {"demand": "#3f86d0", "warm": "#e08a1e", "write": "#9a6fc8"}
PHASES = {
    "queued": "#b9c1cb",
    "waits for budget": "#d6495b",
    "waits for its pages": "#3f86d0",
    "ready, not yet copied": "#c9b458",
    "copied to the GPU": "#3ca35f",
    "until first use": "#8fcfa6",
    "hint": "#e08a1e",
}
OUTCOMES = {
    "prepared": "#e08a1e",
    "restored": "#3ca35f",
    "unused": "#c8553d",
    "pending": "#c9a227",
}
CLASSES = {"reclaimable": "#e08a1e", "probationary": "#9a6fc8", "retained": "#1a9c86"}
LIMIT = "#d6495b"
OTHERS = ("#3f86d0", "#e08a1e", "#3ca35f", "#d6495b", "#9a6fc8", "#c9a227", "#1a9c86", "#98a2ae", "#b0704f")


def colours(series: list[str], known: dict[str, str]) -> dict[str, str]:
    """Those that are known by their first word that names one; the others take the free ones in turn."""
    found: dict[str, str] = {}
    for name in series:
        words = name.replace(",", " ").replace(":", " ").replace("_", " ").split()
        match = next((known[word] for word in words if word in known), None)
        if match is not None and match not in found.values():
            found[name] = match
        else:
            found[name] = next((free for free in OTHERS if free not in found.values()), OTHERS[-1])
    return found
