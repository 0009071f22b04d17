"""Quality over time: charts with intervals, drift with a stated rate of false alarms, models that changed, alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet_live.quality.alerts import APPROVAL, QualityAlert
    from whet_live.quality.channels import AlertChannel, read_channels
    from whet_live.quality.delivery import deliver_due
    from whet_live.quality.glance import PromptGlance
    from whet_live.quality.marks import ChangeMark
    from whet_live.quality.measures import QualityMeasure
    from whet_live.quality.quality import Quality
    from whet_live.quality.report import QualityOptions, QualityQuery, QualityReport
    from whet_live.quality.series import MeasureSeries, QualityGroup, QualityPoint, begin_of
    from whet_live.quality.threshold import check_quality

_HOMES = {
    "whet_live.quality.alerts": "APPROVAL QualityAlert",
    "whet_live.quality.channels": "AlertChannel read_channels",
    "whet_live.quality.delivery": "deliver_due",
    "whet_live.quality.glance": "PromptGlance",
    "whet_live.quality.marks": "ChangeMark",
    "whet_live.quality.measures": "QualityMeasure",
    "whet_live.quality.quality": "Quality",
    "whet_live.quality.report": "QualityOptions QualityQuery QualityReport",
    "whet_live.quality.series": "MeasureSeries QualityGroup QualityPoint begin_of",
    "whet_live.quality.threshold": "check_quality",
}

__all__ = [
    "APPROVAL",
    "AlertChannel",
    "ChangeMark",
    "MeasureSeries",
    "PromptGlance",
    "Quality",
    "QualityAlert",
    "QualityGroup",
    "QualityMeasure",
    "QualityOptions",
    "QualityPoint",
    "QualityQuery",
    "QualityReport",
    "begin_of",
    "check_quality",
    "deliver_due",
    "read_channels",
]

__getattr__ = lazy(__name__, _HOMES)
