"""The grammar as a generator: counting, splits, determinism, one translation for each sentence, frequencies."""

import itertools
import re
from collections import Counter

import pytest

from minitransformer.grammar import CONSTRUCTIONS, count_sentences, generation, pairs, sample, translate
from minitransformer.grammar.lexicon import Lexicon
from minitransformer.grammar.lexicon import function_words as words
from minitransformer.grammar.lexicon.adjectives import ADJECTIVES
from minitransformer.grammar.lexicon.nouns import NOUNS
from minitransformer.grammar.parsing import Vocabulary, parse
from minitransformer.grammar.rules import Grammar

EMPTY = Lexicon._make([{}, *[()] * (len(Lexicon._fields) - 1)])  # nouns are a dictionary, all else tuples
FULL = Lexicon()


@pytest.fixture(scope="module", params=[12_000, pytest.param(50_000, marks=pytest.mark.slow)])
def samples(request):
    return list(itertools.islice(sample("train", seed=7), request.param))


def noun(kind, english):
    return {kind: tuple(each for each in NOUNS[kind] if each.english[0] == english)}


def entries(table, *verbs):
    return tuple(entry for entry in table if entry.verb.english[0] in verbs)


def small_statements():
    """A lexicon of one person, one thing and a few verbs, without anything that joins two clauses."""
    return EMPTY._replace(
        nouns=noun("person", "man") | noun("text", "book"),
        determiners=(words.A, words.NO),
        adjectives=tuple(each for each in ADJECTIVES if each.english == "old"),
        transitive=entries(FULL.transitive, "read"),
        present_times=words.PRESENT_TIMES[:1],
    )


def small_plurals():
    """Use the small lexicon with plurals and without adjectives."""
    return small_statements()._replace(determiners=(words.THE,), adjectives=())


def small_verbs():
    """A lexicon with every kind of verb but hardly any nouns."""
    return EMPTY._replace(
        nouns=noun("relation", "aunt") | noun("place", "zoo") | noun("drink", "milk"),
        determiners=(words.A, words.MASS),
        pronouns=(words.HE,),
        intransitive=entries(FULL.intransitive, "sleep", "get up"),
        dative=entries(FULL.dative, "help"),
        ditransitive=entries(FULL.ditransitive, "offer"),
        prepositional=entries(FULL.prepositional, "look"),
        motion=entries(FULL.motion, "go"),
        places=(words.IN,),
        modals=(words.CAN,),
        future_times=words.FUTURE_TIMES[:1],
    )


def small_links():
    """A lexicon for two clauses: pronouns and intransitive verbs only."""
    return EMPTY._replace(
        pronouns=words.PRONOUNS,
        intransitive=entries(FULL.intransitive, "sleep", "wake up"),
        links=FULL.links,
        clause_verbs=FULL.clause_verbs[:3],
        coordinators=FULL.coordinators,
        present_times=words.PRESENT_TIMES[:1],
    )


@pytest.mark.parametrize("make", [small_statements, small_plurals, small_verbs, small_links])
def test_the_count_agrees_with_listing_every_sentence_of_a_smaller_lexicon(make):
    sentences = Grammar(make()).sentences
    listed = Counter(generation.Example(derivation).english for derivation in sentences)
    assert len(listed) > 1000
    assert listed.most_common(1)[0][1] == 1
    assert len(listed) == sentences.size


def test_there_are_as_many_lemmas_and_sentences_as_the_readme_says():
    assert len(FULL.lemmas()) == 374
    assert f"{count_sentences():.0e}" == "7e+39"


def test_sentences_have_at_least_nine_words_on_average_and_are_never_very_long(samples):
    lengths = [len(each.english.split()) for each in samples]
    assert sum(lengths) / len(lengths) >= 9
    assert max(lengths) <= 40


def test_a_sentence_has_one_translation(samples):
    known = {}
    for each in samples:
        translations = (each.german, each.french, each.tree)
        assert known.setdefault(each.english, translations) == translations
    assert len(known) > 0.98 * len(samples)


def test_a_sentence_has_one_derivation_and_the_parser_finds_it(samples):
    vocabulary = Vocabulary(FULL)
    for each in samples[:2000]:
        assert parse(each.english, vocabulary) == [each.derivation]


def test_the_leaves_of_the_tree_spell_the_sentence(samples):
    for each in samples[:5000]:
        leaves = " ".join(re.findall(r"\(\S+ ([^()]+)\)", each.tree))
        text = re.sub(r" ([,.?])", r"\1", leaves)
        assert text[0].upper() + text[1:] == each.english
        assert each.tree.count("(") == each.tree.count(")")


def test_text_is_written_as_text_is(samples):
    for each in samples[:20_000]:
        for text in (each.english, each.german, each.french):
            assert text[0].isupper()
            assert text[-1] in ".?"
            assert not re.search(r"  |,,|, ,| ,|,[.?]| \.", text), text
        assert not re.search(r"[a-zäöüß] \?", each.english + each.german)
        # what French never writes: an unelided word before a vowel, an uncontracted article
        elided = r"\b(?:[jnd]e|que|la|le) (?=[aeiouéêœ])(?!onze)"
        assert not re.search(elided, each.french), each.french
        assert not re.search(r"\b(?:de|à) les? |\bma (?=[aeiouéêœ])|\bce (?=[aeiouéêœ])|\bsi ils?\b", each.french)
        # what German never writes uncontracted, and every subordinate clause has its comma
        assert not re.search(r"\b(?:in dem|in das|an das|zu dem|zu der|von dem) ", each.german), each.german
        assert not re.search(r"[^,] (?:weil|dass|wenn|während) ", each.german), each.german


def test_every_construction_is_frequent(samples):
    seen = Counter(name for each in samples for name in each.constructions)
    assert set(seen) == set(CONSTRUCTIONS)
    rare = {name: count / len(samples) for name, count in seen.items() if count < 0.03 * len(samples)}
    assert not rare


def test_a_sentence_that_is_read_may_have_a_pronoun_after_a_preposition():
    """The grammar draws no such sentence, but forms it: a model writes one now and then."""
    assert translate("They dream of him.").constructions == {"simple sentence", "prepositional phrase"}


def test_every_word_of_the_lexicon_is_used(samples):
    text = " ".join(each.english.lower() for each in samples)
    seen = set(re.findall(r"[a-z-]+", text))
    for part, word in FULL.lemmas():
        assert set(word.lower().split()) <= seen, (part, word)


def test_splits_share_no_sentence_and_agree_with_the_hash(samples):
    held_out = {}
    for split in ("valid", "test"):
        held_out[split] = {each.english for each in itertools.islice(sample(split, seed=7), 300)}
        assert all(generation.split_of(sentence) == split for sentence in held_out[split])
    assert all(generation.split_of(each.english) == "train" for each in samples)
    assert not held_out["valid"] & held_out["test"]
    assert not (held_out["valid"] | held_out["test"]) & {each.english for each in samples}


def test_sample_n_depends_on_seed_split_and_n_only(samples):
    assert [each.english for each in itertools.islice(sample("train", 7, start=100), 5)] == [
        each.english for each in samples[100:105]
    ]
    other = [each.english for each in itertools.islice(sample("train", 8), 100)]
    assert set(other).isdisjoint(each.english for each in samples[:100])


def test_pairs_are_the_samples_in_either_language(samples):
    german = list(pairs("train", 7, count=3, start=2))
    assert german == [(each.english, each.german) for each in samples[2:5]]
    french = list(pairs("train", 7, language="french", count=3))
    assert french == [(each.english, each.french) for each in samples[:3]]


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="split must be one of"):
        sample("dev", 0)
    with pytest.raises(ValueError, match="start must not be negative"):
        sample("train", 0, start=-1)
    with pytest.raises(ValueError, match="language must be"):
        pairs("train", 0, language="english")  # pyright: ignore[reportArgumentType]


NO_SENTENCES = ["", "The dog", "The dog sleep.", "Dogs the sleeps.", "He reads a cloud.", "?"]
WRONG_NUMBER = ["She sees every white tables.", "She sees two white table.", "She sees two mother's tables."]


@pytest.mark.parametrize("sentence", [*NO_SENTENCES, *WRONG_NUMBER])
def test_what_is_not_of_the_language_is_not_translated(sentence):
    with pytest.raises(ValueError, match="sentence must be one that the grammar can form"):
        translate(sentence)
