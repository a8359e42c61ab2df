"""Pictures of share groups: the report and the dashboard. The only place that draws, and that may import plotly.

The exports of this package are for programs and notebooks; a name is imported on its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.exports import lazy_exports

if TYPE_CHECKING:
    from sharegroup.cli.pictures.report_content import group_report as group_report
    from sharegroup.cli.pictures.report_page import report_html as report_html

__getattr__, __all__ = lazy_exports(__name__)
