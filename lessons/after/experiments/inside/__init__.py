"""A look inside a trained GPT, BERT and translator: the functions of their sub-layers, compared.

It measures the distances of attention, the heads and sub-layers that can be removed (Michel et al. 2019), and each
model's predictions after each layer (nostalgebraist 2020, "interpreting GPT").
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from minitransformer.data.preparation import CorpusChoice
from minitransformer.models import BERTConfig, GPTConfig, TransformerConfig
from minitransformer.plots.page import BLUE, GREY, INK, ORANGE, PALE, VERMILION, Page, text_style
from minitransformer.system.threads import Threads
from minitransformer.training import TrainingSettings
from minitransformer.training.checkpoint import load_checkpoint
from study.charts import finish
from study.comparison import scores
from study.experiment import Context, Findings
from study.markdown import listed, paragraph, picture, table
from study.trials.bootstrap import Interval
from study.trials.run import lasting
from study.trials.seeds import welch
from study.trials.text_models import TextLoss, TextTrial
from study.trials.translating import Translating
from study.trials.trial import Trial

from ...predictions import Outcome, prediction_blocks, predictions_of
from ...task import VOCAB_SIZE, Texts
from .looking import kind_of, look_inside, subject

NAME, TITLE, MINUTES, ALONE = "inside", "What the sub-layers learn", 6.0, 6.0

GPT, BERT, TRANSLATOR = "GPT", "BERT", "translator"
COLOURS = {GPT: BLUE, BERT: ORANGE, TRANSLATOR: VERMILION}
WIDTHS: dict[str, Any] = {"d_model": 128, "num_heads": 4, "d_ff": 512, "dropout": 0.0}
LAYERS, LENGTH, MAX_LENGTH = 4, 64, 128
"""Layers of GPT and BERT (the translator's encoder and decoder have half of them each); tokens of GPT's rows."""

STEPS = {GPT: 700, BERT: 900, TRANSLATOR: 1400}
RATES = {GPT: 3e-3, BERT: 2e-3, TRANSLATOR: None}
"""The peaks of the learning rate; None: the paper's."""

SENTENCES = 40_000
VOCABULARIES = {GPT: VOCAB_SIZE, BERT: VOCAB_SIZE + 1, TRANSLATOR: 1200}
"""The tokens of each model's vocabulary; BERT's has one more, its mask."""

SOME = 5.0
"""Heads may go until perplexity has risen by this much, in percent."""

KINDS = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """The training of each of the three models."""
    english = task.english(SENTENCES)
    german = CorpusChoice(vocab_size=VOCABULARIES[TRANSLATOR], sentences=SENTENCES, max_length=MAX_LENGTH)
    gpt = GPTConfig(
        VOCABULARIES[GPT],
        num_layers=LAYERS,
        max_length=LENGTH,
        attention_dropout=0.0,
        bos_id=2,
        eos_id=2,
        **WIDTHS,
    )
    bert = BERTConfig(
        VOCABULARIES[BERT],
        num_layers=LAYERS,
        max_length=MAX_LENGTH,
        attention_dropout=0.0,
        mask_id=VOCAB_SIZE,
        **WIDTHS,
    )
    translator = TransformerConfig.demo(
        VOCABULARIES[TRANSLATOR], num_layers=LAYERS // 2, max_length=MAX_LENGTH, **WIDTHS
    )
    return [
        TextTrial("inside GPT", english, gpt, _settings(GPT, scale), (TextLoss(averaged=True),)),
        TextTrial("inside BERT", english, bert, _settings(BERT, scale), (TextLoss(averaged=True),)),
        Trial("inside translator", german, translator, _settings(TRANSLATOR, scale), (Translating(averaged=True),)),
    ]


def _settings(kind: str, scale: float) -> TrainingSettings:
    """A kind's training; the translator's labels are smoothed, as in the paper, and the others' gradients clipped."""
    shared: dict[str, Any] = {"tokens_per_batch": 2048, "threads": 1, "peak_lr": RATES[kind]}
    if kind == TRANSLATOR:
        return lasting(TrainingSettings(warmup_steps=300, **shared), scale * STEPS[kind])
    settings = TrainingSettings(warmup_steps=150, label_smoothing=0.0, clip_norm=1.0, **shared)
    return lasting(settings, scale * STEPS[kind])


def find(context: Context[Texts], sentences: int = 200) -> Findings:
    """Look inside each model, on the first sentences of the test set."""
    found: Findings = {"predictions": predictions_of(NAME), "sentences": sentences, "models": {}}
    for kind, trial in zip(COLOURS, trials(context.task, context.scale), strict=True):
        runner, result = context.runner, context.runner.result(trial)
        found["models"][kind] = {"diverged": result.diverged, "seconds": result.seconds}
        if kind == TRANSLATOR and result.diverged is None:
            found["models"][kind]["bleu"] = scores(result)["bleu"]["value"]
        if result.diverged is None:
            model = load_checkpoint(runner.model_path(trial), with_optimizer=False).model(runner.ops, runner.dtype)
            seen, chosen_on = (subject(model, runner.data(trial.text), sentences, split) for split in ("test", "valid"))
            with Threads(1):  # small products: BLAS's own threads would wait for each other
                looked = look_inside(seen, chosen_on, math.log1p(SOME / 100))
            found["models"][kind] |= {"steps": result.steps, "parameters": result.parameters, **looked}
    return found


# --- The report -------------------------------------------------------------------------------------------------


def trained(findings: Findings) -> dict[str, Any]:
    """The models whose training did not diverge."""
    return {kind: found for kind, found in findings["models"].items() if found["diverged"] is None}


def can_go(found: Mapping[str, Any]) -> Interval:
    """The percentage of the heads that can go, least important first, until perplexity has risen by `SOME` percent."""
    return _percent(found["heads"]["can_go"])


def halfway(found: Mapping[str, Any]) -> Interval:
    """The percentage of targets for which the best guess after half the layers is the last one."""
    agrees = found["lens"]["agrees"]
    return _percent(agrees[len(agrees) // 2])


def _percent(share: Mapping[str, float]) -> Interval:
    return Interval(**{name: 100 * value for name, value in share.items()})


def costs_of_heads(found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return, by kind of attention, the rise of the loss without each of its heads, in nats."""
    single = found["heads"]["single"]
    kinds = dict.fromkeys(kind_of(each["layer"]) for each in single)
    return {kind: [each["value"] for each in single if kind_of(each["layer"]) == kind] for kind in kinds}


def nearness(found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return, by kind of self-attention, the distance of each head divided by even attention's."""
    return {kind: (np.ravel(each["heads"]) / each["even"]).tolist() for kind, each in found["distances"].items()}


def layer_name(name: str) -> str:
    """Return a layer's name for readers: `layer 1, cross-attention` for `decoder.layers.0.cross_attention`."""
    _, _, number, part = name.split(".")
    return f"layer {int(number) + 1}, {part.replace('_', '-')}"


def place_of(name: str, found: Mapping[str, Any]) -> str:
    """A layer's name, with that of its stack if the model has two."""
    return layer_name(name) if len(found["distances"]) == 1 else f"{name.partition('.')[0]}, {layer_name(name)}"


def draw(findings: Findings, folder: Path) -> None:
    """Draw distances, the loss as heads go, and the logit lens, as `inside-….png`."""
    models = trained(findings)
    if not models:
        return
    _draw_distances(models, folder / f"{NAME}-distance.png")
    page = Page(4.6, 3.3, layout="constrained")
    axes = page.figure.subplots()
    for kind, found in models.items():
        rises = np.array(found["heads"]["rises"])
        shares = np.linspace(0, 100, len(rises))
        axes.plot(shares, 100 * np.expm1(rises), color=COLOURS[kind], lw=1.6, label=kind)
    axes.axhline(SOME, color=GREY, lw=0.9, ls=":")
    axes.set_yscale("symlog", linthresh=SOME)
    axes.set_ylim(-SOME / 5, 2 * axes.get_ylim()[1])
    axes.yaxis.set_major_locator(FixedLocator([0, SOME, 10, 100, 1000, 10_000, 100_000]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    finish(axes, "heads gone, %", "rise of perplexity, %")
    page.save(folder / f"{NAME}-heads.png")
    _draw_lens(models, folder / f"{NAME}-lens.png")


def _draw_distances(models: Mapping[str, Any], path: Path) -> None:
    panels = [(kind, part, each) for kind, found in models.items() for part, each in found["distances"].items()]
    page = Page(7.4, 2.7, layout="constrained")
    every = np.atleast_1d(page.figure.subplots(1, len(panels), sharey=True))
    for axes, (kind, part, each) in zip(every, panels, strict=True):
        for layer, heads in enumerate(each["heads"], start=1):
            axes.plot([layer] * len(heads), heads, "o", ms=4.5, color=COLOURS[kind], alpha=0.8)
        axes.axhline(each["even"], color=GREY, lw=0.9, ls=":")
        title = kind if kind != TRANSLATOR else f"{kind}, {part}"
        axes.set_title(title, **text_style([title], 9))
        axes.set_xticks(range(1, len(each["heads"]) + 1))
        finish(axes, "layer", "mean distance, tokens" if axes is every[0] else "")
        axes.grid(axis="y", color=PALE, lw=0.8)
    page.save(path)


def _draw_lens(models: Mapping[str, Any], path: Path) -> None:
    page = Page(7.4, 3.0, layout="constrained")
    both: Sequence[Axes] = page.figure.subplots(1, 2)
    for kind, found in models.items():
        depth = np.linspace(0, 1, len(found["lens"]["loss"]))
        both[0].plot(depth, found["lens"]["loss"], "o-", ms=4, color=COLOURS[kind], lw=1.6, label=kind)
        both[1].plot(
            depth, [100 * each["value"] for each in found["lens"]["agrees"]], "o-", ms=4, color=COLOURS[kind], lw=1.6
        )
    both[0].legend(frameon=False, fontsize=8, labelcolor=INK)
    finish(both[0], "layers passed ÷ all layers", "loss, nats")
    finish(both[1], "layers passed ÷ all layers", "best guess is the last layer's, %")
    page.save(path)


def judge(findings: Findings) -> dict[str, Outcome]:
    """Return the outcome of each prediction."""
    models = trained(findings)
    if len(models) < len(COLOURS):
        return dict.fromkeys(findings["predictions"], Outcome("a training run diverged", None))
    gpt, bert, translator = (models[kind] for kind in COLOURS)
    nearest = {
        kind: min(min(each["heads"][0]) for each in found["distances"].values()) for kind, found in models.items()
    }
    layers = {kind: next(iter(models[kind]["distances"].values()))["heads"] for kind in (GPT, BERT)}
    near = {kind: next(iter(nearness(models[kind]).values())) for kind in (GPT, BERT)}
    gone = {kind: can_go(found) for kind, found in models.items()}
    cost = costs_of_heads(translator)
    dearest = {kind: max(found["sublayers"], key=lambda each: each["value"]) for kind, found in models.items()}
    falls = {kind: bool(np.all(np.diff(found["lens"]["loss"]) < 0)) for kind, found in models.items()}
    agrees = {kind: halfway(found) for kind, found in models.items()}
    most_of_others = max((agrees[BERT], agrees[TRANSLATOR]), key=lambda each: each.value)
    return {
        "near heads": Outcome(_each(nearest, 2), max(nearest.values()) < 2),
        "deeper is farther": Outcome(
            "; ".join(f"{kind} {np.mean(each[0]):.1f} and {np.mean(each[-1]):.1f}" for kind, each in layers.items()),
            rising(*((each[0], each[-1]) for each in layers.values())),
        ),
        "GPT is nearer": Outcome(
            _each({kind: float(np.mean(each)) for kind, each in near.items()}, 2), rising((near[GPT], near[BERT]))
        ),
        "heads of GPT": Outcome(f"{gone[GPT].text(0)} %", found=gone[GPT]),
        "heads of BERT": Outcome(f"{gone[BERT].text(0)} %", found=gone[BERT]),
        "heads of the translator": Outcome(f"{gone[TRANSLATOR].text(0)} %", found=gone[TRANSLATOR]),
        "cross-attention": Outcome(
            ", ".join(f"{KINDS[kind]} {np.mean(values):.3f}" for kind, values in cost.items()),
            rising((cost["encoder"], cost["decoder"]), (cost["decoder"], cost["cross"])),
        ),
        "GPT's dearest": Outcome(
            place_of(dearest[GPT]["layer"], gpt), dearest[GPT]["layer"].endswith("layers.0.feed_forward")
        ),
        "BERT's dearest": Outcome(
            place_of(dearest[BERT]["layer"], bert), dearest[BERT]["layer"].endswith("layers.0.self_attention")
        ),
        "the translator's dearest": Outcome(
            place_of(dearest[TRANSLATOR]["layer"], translator), kind_of(dearest[TRANSLATOR]["layer"]) == "cross"
        ),
        "the lens falls": Outcome(
            "; ".join(f"{kind} {'falls' if each else 'does not always'}" for kind, each in falls.items()),
            all(falls.values()),
        ),
        "half the layers": Outcome(f"{agrees[GPT].text(1)} %", found=agrees[GPT]),
        "GPT says it first": Outcome(
            ", ".join(f"{kind} {each.text(1)} %" for kind, each in agrees.items()),
            None
            if agrees[GPT].low <= most_of_others.high and most_of_others.low <= agrees[GPT].high
            else agrees[GPT].value > most_of_others.value,
        ),
    }


def rising(*pairs: tuple[Sequence[float], Sequence[float]]) -> bool | None:
    """Return True if the second of each pair of sets of heads has the larger mean, by Welch's interval over heads.

    None if that can't be told: another training gives other heads their jobs.
    """
    gaps = [welch(second, first) for first, second in pairs]
    if any(gap.high < 0 for gap in gaps):
        return False
    return True if all(gap.low > 0 for gap in gaps) else None


def _each(values: Mapping[str, float], digits: int) -> str:
    return ", ".join(f"{kind} {value:.{digits}f}" for kind, value in values.items())


def report(findings: Findings) -> list[str]:
    """Report distances, heads, sub-layers and the lens, and the predictions."""
    models = trained(findings)
    diverged = [kind for kind in findings["models"] if kind not in models]
    if not models:
        return ["Every training run diverged."]
    return [
        paragraph(f"""
            Three models of width {WIDTHS["d_model"]} with {WIDTHS["num_heads"]} heads a layer, trained on the grammar's
            sentences: a GPT that reads rows of {LENGTH} tokens, a BERT that fills gaps in single sentences, both with
            {LAYERS} layers, and a translator with {LAYERS // 2} layers in its encoder and as many in its decoder. GPT
            is pre-norm, as GPT-2; BERT and the translator are post-norm, as published. This is one reason for their
            differences. {_sizes(models)} All that follows was measured on {findings["sentences"]} sentences of the test
            set; intervals are those of 1,000 bootstrap samples of their rows. Each model was trained once, and with
            another seed other heads would have the same jobs. So all brackets and verdicts of this section are about
            these three training runs. Where the means of two sets of heads are compared, the interval of their
            difference is Welch's, as if the heads were a random sample.
            {f"Diverged: {', '.join(diverged)}." if diverged else ""}
        """),
        "### Where attention looks",
        paragraph("""
            Distance is the mean distance from a query to the keys that it attends to, in tokens, weighted by attention.
            The picture has one dot for each head. The dotted line is even attention: the distance of a head with equal
            weights on all keys that it may see. The table has the nearest and the farthest head, with layer and head in
            brackets, and the mean of all heads divided by even attention's. Distances have no intervals.
        """),
        picture(f"{NAME}-distance", "Mean distance of attention, by head and layer, for each model"),
        _distance_table(models),
        "### Which heads and sub-layers can go",
        paragraph(f"""
            A head is switched off by setting to zero the rows of the output projection that read it; a sub-layer, by
            setting to zero its last weights and bias, so that only the residual connection is left. The table shows the
            rise of the mean loss of a target, in nats. Then heads are switched off one after the other, beginning with
            the head that costs least alone (Michel et al. 2019); this order is found on as many sentences of the
            validation set. The last column says how many can go until perplexity on the test set has risen by {SOME:g}
            %.
        """),
        _head_table(models),
        picture(f"{NAME}-heads", "Rise of perplexity as heads are switched off, for each model"),
        f"Dotted: {SOME:g} %, above which the vertical axis is logarithmic.",
        *_sublayer_tables(models),
        "### The logit lens",
        paragraph(f"""
            The table shows the loss if the output layer already read the output of 0, 1, … layers, and how often its
            best guess is then that of the last layer. Before the first layer the output layer reads a vector that it
            never saw in training. {_worse_than_even(models)} The translator's layers are its decoder's. Of BERT's
            tokens only the targets count: eight in ten of them are masked, one is another token, and one is left as it
            is, so that it can be read even before the first layer.
        """),
        _lens_table(models),
        picture(f"{NAME}-lens", "Loss and agreement with the last layer after each layer, for each model"),
        *prediction_blocks(findings["predictions"], judge(findings)),
    ]


def _worse_than_even(models: Mapping[str, Any]) -> str:
    """Name the models whose loss before the first layer is above an even guess's, the logarithm of the vocabulary."""
    worse = [kind for kind, found in models.items() if found["lens"]["loss"][0] > math.log(VOCABULARIES[kind])]
    if not worse:
        return ""
    return f"In {listed(worse)} the loss there is worse than that of an even guess: the model is sure of wrong tokens."


def _sizes(models: Mapping[str, Any]) -> str:
    said = [
        f"{kind}: {found['parameters']:,} parameters, {found['steps']:,} steps in {found['seconds']:,.0f} s, a loss of "
        f"{found['loss']:.3f} nats a target" + (f" and {found['bleu']:.1f} BLEU" if "bleu" in found else "")
        for kind, found in models.items()
    ]
    return "; ".join(said) + "."


def _distance_table(models: Mapping[str, Any]) -> str:
    rows = []
    for kind, found in models.items():
        for part, each in found["distances"].items():
            heads = [(value, f"{n + 1}.{h + 1}") for n, row in enumerate(each["heads"]) for h, value in enumerate(row)]
            (least, near), (most, far) = min(heads), max(heads)
            name = kind if kind != TRANSLATOR else f"{kind}, {KINDS[part]}"
            share = np.mean(nearness(found)[part])
            rows.append([name, f"{least:.1f} ({near})", f"{most:.1f} ({far})", f"{each['even']:.1f}", f"{share:.2f}"])
    return table(["self-attention", "nearest head", "farthest head", "even attention", "mean ÷ even"], rows)


def _head_table(models: Mapping[str, Any]) -> str:
    rows = []
    for kind, found in models.items():
        single = found["heads"]["single"]
        least, most = (pick(single, key=lambda each: each["value"]) for pick in (min, max))
        rows.append(
            [
                kind,
                str(len(single)),
                *(f"{_interval(each).text(3, sign=True)}, {_head_name(each, found)}" for each in (least, most)),
                f"{can_go(found).text(0)} %",
            ]
        )
    return table(["model", "heads", "cheapest head", "most costly head", "can go"], rows)


def _head_name(each: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    return f"{place_of(each['layer'], found)}, head {each['head'] + 1}"


def _interval(found: Mapping[str, Any]) -> Interval:
    return Interval(found["value"], found["low"], found["high"])


def _sublayer_tables(models: Mapping[str, Any]) -> list[str]:
    """Return a table for each model: the rise of the loss without each sub-layer, a column for each layer."""
    rows: dict[str, list[str]] = {}
    for kind, found in models.items():
        for each in found["sublayers"]:
            stack, _, _, part = each["layer"].split(".")
            place = f"{kind}, {stack}" if len(found["distances"]) > 1 else kind
            rows.setdefault(f"{place}: {part.replace('_', '-')}", []).append(_interval(each).text(3, sign=True))
    deepest = max(map(len, rows.values()))
    cells = [[name, *values, *[""] * (deepest - len(values))] for name, values in rows.items()]
    head = ["without one sub-layer, nats", *(f"of layer {n}" for n in range(1, deepest + 1))]
    most = []
    for kind, found in models.items():
        first, second = sorted(found["sublayers"], key=lambda each: each["value"], reverse=True)[:2]
        most.append(
            f"{kind[0].upper()}{kind[1:]}: {place_of(first['layer'], found)}, {_interval(first).text(1, sign=True)} "
            f"nats; then {place_of(second['layer'], found)}, {_interval(second).text(1, sign=True)}"
        )
    said = f"The two most costly sub-layers of each model. {'. '.join(most)}."
    return ["Without one whole sub-layer the loss rises by:", table(head, cells), said]


def _lens_table(models: Mapping[str, Any]) -> str:
    deepest = max(len(found["lens"]["loss"]) for found in models.values())
    rows = []
    for kind, found in models.items():
        lens = zip(found["lens"]["loss"], found["lens"]["agrees"], strict=True)
        cells = [f"{loss:.2f}, {_percent(agrees).value:.0f} %" for loss, agrees in lens]
        rows.append([kind, *cells, *[""] * (deepest - len(cells))])
    return table(["model: loss, agreement", *(f"after {n}" for n in range(deepest))], rows)
