"""The experiments: each a module with what `minitransformer.paper.experiment.Experiment` names."""
