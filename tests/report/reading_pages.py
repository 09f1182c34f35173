"""What a page shows, as text and as charts."""

import json
import re


def own(html):
    """The page without the library it carries."""
    scripts = re.findall(r"<script>(.*?)</script>", html, re.S)
    return html.replace(max(scripts, key=len), "")


def charts(html):
    return json.loads(re.search(r'<script id="charts" type="application/json">(.*?)</script>', html, re.S)[1])


def words(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", own(html).split("<body>")[1].split("<script")[0]))
