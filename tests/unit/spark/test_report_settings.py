"""What the report job can be told."""

import pytest
from quintet_kit.settings import SettingsFaultsError, load
from quintet_spark.jobs.settings import ReportSettings


def test_days_and_a_first_day_say_the_same_thing() -> None:
    with pytest.raises(SettingsFaultsError, match="give one of them"):
        load(ReportSettings, spark_report_days=7, spark_report_from="2026-03-01")


@pytest.mark.parametrize("days", [0, -1, 36_501, "many"])
def test_a_number_of_days_that_makes_no_sense_is_refused(days: object) -> None:
    with pytest.raises(SettingsFaultsError, match="QUINTET_SPARK_REPORT_DAYS"):
        load(ReportSettings, spark_report_days=days)


def test_a_last_day_goes_with_a_number_of_days() -> None:
    settings = load(ReportSettings, spark_report_days=7, spark_report_through="2026-03-01")
    assert settings.spark_report_days == 7
