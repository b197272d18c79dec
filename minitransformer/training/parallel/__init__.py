"""One training step shared by threads and processes; the step itself is in `training/step.py`.

data_parallel  replicas of a model, each with a gradient of its own, in threads
shards         the tree along which gradients are added, and Adam on a slice of the parameters
processes      the processes of a training, and how they wait for each other
launch         how they find each other, and what they must agree on
"""
