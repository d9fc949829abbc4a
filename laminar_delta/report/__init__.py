"""One page about a catalog: timelines, sizes, statuses, chains, recoveries, storage and audit."""
