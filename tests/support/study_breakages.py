"""Mistakes that are easily made in studies, each as a small patch: what their tests must refuse (see `breakages`)."""

from support.breakages import Breakage, breakages

TABLE = r"""
[study/trials/likelihood.py: study/test_reading]
padding among the targets | picked * real → picked
[study/trials/reading.py: study/test_reading]
rows of the model's longest text instead of the trial's | max_length=self.length) → max_length=config.max_length)
[study/trials/runner.py: study/test_reading]
a trial that does not wait for what it needs | if undone.isdisjoint(map(self.key, trial.needs)) → if True
[study/trials/seeds.py: study/test_seeds]
an interval of rows alone | half = math.hypot((of_seeds → half = min((of_seeds
a rise with the interval of seeds alone | half = math.hypot(*halves) → half = halves[0]
the variance of a seed for that of the mean
    / len(values) for values in (ours, theirs)] → for values in (ours, theirs)]
[after/predictions.py: after/test_predictions]
right as soon as a part of the interval is in the range
    if prediction["low"] <= found.low and found.high <= prediction["high"]: →
        if prediction["low"] <= found.high and found.low <= prediction["high"]:
[after/experiments/decoding.py: after/test_decoding_cost]
a state that is only read | passes = 2 if → passes = 1 if
[after/experiments/ablation.py: after/test_ablation]
perplexity beyond held against that of whole rows | for which in (LATE, BEYOND)))) → for which in (WITHIN, BEYOND))))
no difference wherever the interval holds zero | gap.low >= -EQUAL and gap.high <= EQUAL → not gap.excludes_zero
rows that are asked one token early | length=LONGER, skip=LENGTH, → length=LONGER, skip=LENGTH - 1,
a gated network as wide as the other | "gated": True, "d_ff": equal_width()} → "gated": True}
[after/experiments/inside/__init__.py: after/test_looking_inside]
an even guess among another model's tokens | math.log(VOCABULARIES[kind]) → math.log(VOCABULARIES[GPT])
[after/experiments/inside/looking.py: after/test_looking_inside]
another head switched off | slice(head * width, (head + 1) * width) → slice(0, width)
heads chosen by the text on which they are measured | = chosen_on.loss() → = seen.loss()
heads that stay off | parameter.data[rows] = values → pass
a token that is one away from itself | np.arange(time), np.arange(time))) → np.arange(time), np.arange(time) - 1))
[after/experiments/distillation/__init__.py: after/test_distillation]
differences of trainings without room for seeds | math.sqrt(2) * sd) → 0.0)
three seeds taken for many | student_t(len(OF_SEEDS[SEARCHED]) - 1) * sd → 1.96 * sd
what a student lacks still for what it made up for | 100 * (ours - low) / → 100 * (high - ours) /
the other's gain less ours | return (a - b) - (c - d) → return (c - d) - (a - b)
[after/experiments/distillation/taught.py: after/test_distillation]
a gradient that points up | cross_entropy.backward(dloss * → cross_entropy.backward(-dloss *
a mean over padding too | return loss * logits.dtype.type(scale), → return loss,
a teacher that speaks of padding | wanted[batch.target_out == PAD_ID] = 0 → pass
the right translations where the teacher's are wanted | zip(sources, translations( → zip(sources, list(
[after/experiments/scaling/__init__.py: after/test_scaling]
one count of parameters for both laws | aside["parameters"][count] → aside["parameters"][ALL]
[after/experiments/scaling/fit.py: after/test_scaling]
squares, so that one outlier moves the law
    np.minimum(1, DELTA / np.maximum(np.abs(residuals), 1e-300)) → np.ones_like(residuals)
the optimum's exponent upside down
    return self.beta / (self.alpha + self.beta) → return self.alpha / (self.alpha + self.beta)
"""

STUDY_BREAKAGES: list[Breakage] = [each._replace(package="lessons") for each in breakages(TABLE)]
