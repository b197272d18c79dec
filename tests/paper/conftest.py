"""The fixtures of tests of studies."""

from support.study_fixtures import few_samples, small_validation_set

__all__ = ["few_samples", "small_validation_set"]
