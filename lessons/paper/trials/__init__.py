"""Trainings and exams that are described, done once, kept, and compared with their uncertainty."""
