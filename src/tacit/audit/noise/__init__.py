"""Is the noise as large, as independent and as normal as stated, and are lots drawn as stated?"""
