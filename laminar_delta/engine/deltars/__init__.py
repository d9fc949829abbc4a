"""delta-rs, as engines share it: `embedded` for everything, `spark` for upkeep of local logs, `memory` for answering SQL."""
