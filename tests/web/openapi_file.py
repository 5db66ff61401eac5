"""Write docs/openapi.json from the routes: `python -m tests.web.openapi_file`."""

from __future__ import annotations

import json
from pathlib import Path

from shadowtree.web.openapi import describe_routes

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"

if __name__ == "__main__":
    FILE.write_text(json.dumps(describe_routes(), indent=2) + "\n", "utf-8")
