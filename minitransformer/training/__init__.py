"""Training: it repeats exactly from its seed, survives any kill, and resumes as if it had never stopped."""

from .data import Dataset
from .parallel.data_parallel import DataParallel
from .settings import TrainingSettings
from .step import TrainingDiverged, Worker, training_step
from .trainer import Trainer, TrainingOutcome
from .training_log import LOG_NAME, PICTURE_NAME, check_new, read_log

__all__ = [
    "LOG_NAME", "PICTURE_NAME", "DataParallel", "Dataset", "Trainer", "TrainingDiverged", "TrainingOutcome",
    "TrainingSettings", "Worker", "check_new", "read_log", "training_step",
]  # fmt: skip
