"""Training: what repeats exactly from its seed, survives any kill, and continues as if never stopped."""

from .parallel import DataParallel
from .settings import TrainingSettings
from .trainer import Trainer, TrainingDiverged, TrainingOutcome
from .training_log import read_log

__all__ = ["DataParallel", "Trainer", "TrainingDiverged", "TrainingOutcome", "TrainingSettings", "read_log"]
