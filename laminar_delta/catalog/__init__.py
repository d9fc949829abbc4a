"""The catalog: what the tables are, and the one implementation of everything done with them, over Arrow."""
