"""Whether noise is as large, as independent and as normal as stated, and lots are drawn as stated."""
