"""Trainings and evaluations that are described, done once, kept, and compared with their uncertainty."""
