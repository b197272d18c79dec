"""Mistakes that are easily made in studies, each as a small patch: what their tests must refuse (see `breakages`)."""

from support.breakages import Breakage, breakages

TABLE = r"""
[study/trials/likelihood.py: study/test_text_models]
padding among the targets | target_losses: picked * real → picked
[study/trials/text_models.py: study/test_text_models]
rows of the model's longest text instead of the trial's | TextRows.batches: self.length → config.max_length
[study/trials/runner.py: study/test_text_models]
a trial that does not wait for what it needs | Runner._first_ready: undone.isdisjoint(map(self.key, trial.needs)) → True
[study/trials/seeds.py: study/test_seeds]
an interval of rows alone | loss_difference: math.hypot → min
a rise with the interval of seeds alone | loss_rise: math.hypot(*halves) → halves[0]
a fall with the interval of seeds alone | percentage_drop: , *halves) → )
the variance of a seed for that of the mean | welch: / len(values) for → for
[after/predictions.py: after/test_predictions]
right as soon as a part of the interval is in the range
    is_right: prediction["low"] <= found.low and found.high <= prediction["high"] →
        prediction["low"] <= found.high and found.low <= prediction["high"]
[after/experiments/decoding.py: after/test_decoding_cost]
a state that is only read | moved_bytes: 2 if → 1 if
[after/experiments/ablation.py: after/test_ablation]
perplexity beyond held against that of whole rows | stretch: (LATE, BEYOND) → (WITHIN, BEYOND)
no difference wherever the interval holds zero | judge: gap.low >= -EQUAL and gap.high <= EQUAL → not gap.excludes_zero
rows that are asked one token early | EVALUATIONS: skip=LENGTH, → skip=LENGTH - 1,
a gated network as wide as the other | VARIANTS: "gated": True, "d_ff": equal_width() → "gated": True
[after/experiments/inside/__init__.py: after/test_looking_inside]
an even guess among another model's tokens | _worse_than_even: VOCABULARIES[kind] → VOCABULARIES[GPT]
[after/experiments/inside/looking.py: after/test_looking_inside]
another head switched off | head_rows: head * width, (head + 1) * width → 0, width
heads chosen by the text on which they are measured | heads_off: chosen_on.loss → seen.loss
heads that stay off | zeroed: parameter.data[rows] = values → pass
a token that is one away from itself | distances: np.arange(time))) → np.arange(time) - 1))
[after/experiments/distillation/__init__.py: after/test_distillation]
differences of trainings without room for seeds | between: math.sqrt(2) * sd → 0.0
three seeds taken for many | widened: student_t(len(OF_SEEDS[SEARCHED]) - 1) → 1.96
what a student lacks still for what it made up for | _closed: ours - low → high - ours
the other's gain less ours | _beam_gains: (a - b) - (c - d) → (c - d) - (a - b)
[after/experiments/distillation/taught.py: after/test_distillation]
a gradient that points up | Student.loss_backward: dloss * cache → -dloss * cache
a mean over padding too | Student.loss: loss * logits.dtype.type(scale) → loss
a teacher that speaks of padding | TaughtBatches.batch: wanted[batch.target_out == PAD_ID] = 0 → pass
the right translations where the teacher's are wanted | StudentTrial.material: translations → list
[after/experiments/scaling/__init__.py: after/test_scaling]
one count of parameters for both laws | _described: aside["parameters"][count] → aside["parameters"][ALL]
[after/experiments/scaling/fit.py: after/test_scaling]
squares, so that one outlier moves the law
    minimise: np.minimum(1, DELTA / np.maximum(np.abs(residuals), 1e-300)) → np.ones_like(residuals)
the optimum's exponent upside down | Law.optimum: return self.beta → return self.alpha
[after/experiments/rewards/arms.py: after/test_rewards_experiment]
drawing that costs nothing | CountedBatches.batch: figures.get("length", 0.0) → 0.0
a reference that costs nothing | Rewarded.lessons: 3 + 1 + (reference is not None) → 3 + 1
pairs the wrong way round | Preferred.lessons: zip(accepted, others, strict=False) → zip(others, accepted, strict=False)
[after/experiments/bits/rounding.py: after/test_bits_experiment]
one level fewer in three bits | simulated: np.float32(2**bits - 1) → np.float32(2**bits - 2)
channels that are rounded though they are spared | Matrices.rounded: new[kept] = matrix[kept] → pass
matrices that stay rounded | Matrices.rounded: parameters.data[...] = before → pass
each channel's error as if there were no other
    channels: x.T @ (x @ wrong[name]) → (x**2).sum(0)[:, None] * wrong[name]
[after/experiments/rewards/judging.py: after/test_rewards_experiment]
a goal that is reached as soon as its interval holds it | reached: found.low >= least → found.high >= least
[after/experiments/code/library.py: after/test_code_experiment]
modules that validate before the others | functions: digest < HELD_OUT → digest > HELD_OUT
a judge that forgives what compile refuses | compiles: _is_accepted(line, 0) → _is_accepted(line, ast.PyCF_ONLY_AST)
[after/experiments/code/plan.py: after/test_code_experiment]
a function without its end | Reading.answer: [ids.tolist()] → [ids.tolist()[:-1]]
[after/experiments/code/__init__.py: after/test_code_experiment]
bits of what was packed before | bits_packed: - len(pack(before)) → - 0
[after/experiments/code/telling.py: after/test_code_experiment]
a base that is measured by its run | against_base: number(run, base) → number(base, run)
"""

STUDY_BREAKAGES: list[Breakage] = breakages(TABLE, "lessons")
