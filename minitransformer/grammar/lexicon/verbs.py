"""Verbs: English base[/past] | German infinitive, third person, [ist] participle | French | subjects or objects.

A regular English past is left out. "/-" marks a state like "know", used only in the present because French does not
use its perfect; "/=" marks a past that is spelt like the present ("read") and not used. "ein|laden" is separable; "ist"
marks a perfect with sein. French gives infinitive, je, il, nous, ils, participle; for verbs in -er only the infinitive,
and je if its stem changes. "être" marks the auxiliary, "se" a reflexive verb, and a final "à" the preposition of the
object.
"""

from typing import NamedTuple

from ..syntax import ACCUSATIVE, DATIVE, Preposition, Verb
from .nouns import kinds_of
from .tables import rows


class Entry(NamedTuple):
    """A verb with the kinds of nouns that it takes as subject and as object."""

    verb: Verb
    subjects: tuple[str, ...]
    objects: tuple[str, ...] = ()
    preposition: Preposition | None = None
    place: bool = True  # takes a phrase of place: sleeps in the garden
    beneficiary: bool = False  # takes a phrase with "for": buys a book for her mother
    stative: bool = False  # used in the present only, and without a time


# verb | subjects; "!" marks a verb without phrases of place
INTRANSITIVE_TABLE = """
work | arbeiten, arbeitet, gearbeitet | travailler | people
sing/sang | singen, singt, gesungen | chanter | people
dance | tanzen, tanzt, getanzt | danser | people
sleep/slept | schlafen, schläft, geschlafen | dormir, dors, dort, dormons, dorment, dormi | people animals
laugh | lachen, lacht, gelacht | rire, ris, rit, rions, rient, ri | people
cry | weinen, weint, geweint | pleurer | people
swim/swam | schwimmen, schwimmt, ist geschwommen | nager | people animals
run/ran | laufen, läuft, ist gelaufen | courir, cours, court, courons, courent, couru | people animals
jump | springen, springt, ist gesprungen | sauter | people animals
wait | warten, wartet, gewartet | attendre, attends, attend, attendons, attendent, attendu | people animals
play | spielen, spielt, gespielt | jouer | people animals
cook | kochen, kocht, gekocht | cuisiner | people
smoke | rauchen, raucht, geraucht | fumer | people
travel/traveled | reisen, reist, ist gereist | voyager | ! people
pray | beten, betet, gebetet | prier | people
get up/got up | auf|stehen, steht, ist aufgestanden | se lever, lève | people animals
wake up/woke up | auf|wachen, wacht, ist aufgewacht | se réveiller | people animals
fall asleep/fell asleep | ein|schlafen, schläft, ist eingeschlafen | \
    se endormir, endors, endort, endormons, endorment, endormi | people animals
arrive | an|kommen, kommt, ist angekommen | être arriver | people
come back/came back | zurück|kommen, kommt, ist zurückgekommen | \
    être revenir, reviens, revient, revenons, reviennent, revenu | ! people animals
go out/went out | aus|gehen, geht, ist ausgegangen | être sortir, sors, sort, sortons, sortent, sorti | ! people
go away/went away | weg|gehen, geht, ist weggegangen | être partir, pars, part, partons, partent, parti | ! people
take part/took part | teil|nehmen, nimmt, teilgenommen | participer | people
give up/gave up | auf|geben, gibt, aufgegeben | abandonner | ! people
"""

# verb | accusative objects; "*" marks verbs whose subject may be an animal, "+" actions for somebody
TRANSITIVE_TABLE = """
see/saw | sehen, sieht, gesehen | voir, vois, voit, voyons, voient, vu | * people animals things building
know/- | kennen, kennt, gekannt | connaître, connais, connaît, connaissons, connaissent, connu | people text
love/- | lieben, liebt, geliebt | aimer | people animals
look for/looked for | suchen, sucht, gesucht | chercher | * people animals things container clothing
find/found | finden, findet, gefunden | trouver | * animals things container clothing food
buy/bought | kaufen, kauft, gekauft | acheter, achète | + object clothing food meal text
sell/sold | verkaufen, verkauft, verkauft | vendre, vends, vend, vendons, vendent, vendu | \
    object clothing food meal pet
read/= | lesen, liest, gelesen | lire, lis, lit, lisons, lisent, lu | text
write/wrote | schreiben, schreibt, geschrieben | écrire, écris, écrit, écrivons, écrivent, écrit | + text
translate | übersetzen, übersetzt, übersetzt | traduire, traduis, traduit, traduisons, traduisent, traduit | + text
understand/understood | verstehen, versteht, verstanden | \
    comprendre, comprends, comprend, comprenons, comprennent, compris | text people
eat/ate | essen, isst, gegessen | manger | * food meal
drink/drank | trinken, trinkt, getrunken | boire, bois, boit, buvons, boivent, bu | drink
order | bestellen, bestellt, bestellt | commander | + drink meal food
wear/wore | tragen, trägt, getragen | porter | clothing
wash | waschen, wäscht, gewaschen | laver | clothing food
repair | reparieren, repariert, repariert | réparer | + goods device opening
forget/forgot | vergessen, vergisst, vergessen | oublier | container clothing things
lose/lost | verlieren, verliert, verloren | perdre, perds, perd, perdons, perdent, perdu | container clothing things
steal/stole | stehlen, stiehlt, gestohlen | voler | things container clothing food
hide/hid | verstecken, versteckt, versteckt | cacher | text container things
admire | bewundern, bewundert, bewundert | admirer | people
visit | besuchen, besucht, besucht | visiter | place area
photograph | fotografieren, fotografiert, fotografiert | photographier | people animals building
draw/drew | zeichnen, zeichnet, gezeichnet | dessiner | + people animals building
feed/fed | füttern, füttert, gefüttert | nourrir, nourris, nourrit, nourrissons, nourrissent, nourri | animals
hear/heard | hören, hört, gehört | entendre, entends, entend, entendons, entendent, entendu | * people animals
catch/caught | fangen, fängt, gefangen | attraper | * animals
kiss | küssen, küsst, geküsst | embrasser | people
greet | begrüßen, begrüßt, begrüßt | saluer | people
meet/met | treffen, trifft, getroffen | rencontrer | people
save | retten, rettet, gerettet | sauver | people animals
recognize | erkennen, erkennt, erkannt | reconnaître, reconnais, reconnaît, reconnaissons, reconnaissent, reconnu | \
    people
look at/looked at | an|sehen, sieht, angesehen | regarder | people animals things building
call | an|rufen, ruft, angerufen | appeler, appelle | people
invite | ein|laden, lädt, eingeladen | inviter | people
turn on/turned on | ein|schalten, schaltet, eingeschaltet | allumer | device
turn off/turned off | aus|schalten, schaltet, ausgeschaltet | \
    éteindre, éteins, éteint, éteignons, éteignent, éteint | device
open | auf|machen, macht, aufgemacht | ouvrir, ouvre, ouvre, ouvrons, ouvrent, ouvert | opening container
close | zu|machen, macht, zugemacht | fermer | opening container
try on/tried on | an|probieren, probiert, anprobiert | essayer, essaie | clothing
take off/took off | aus|ziehen, zieht, ausgezogen | enlever, enlève | garment
throw away/threw away | weg|werfen, wirft, weggeworfen | jeter, jette | things clothing food
tidy up/tidied up | auf|räumen, räumt, aufgeräumt | ranger | room
give back/gave back | zurück|geben, gibt, zurückgegeben | rendre, rends, rend, rendons, rendent, rendu | \
    text things container
prepare | zu|bereiten, bereitet, zubereitet | préparer | + meal
borrow | aus|leihen, leiht, ausgeliehen | emprunter | text things
"""

# verb | dative objects
DATIVE_TABLE = """
help | helfen, hilft, geholfen | aider | people animals
thank | danken, dankt, gedankt | remercier | people
follow | folgen, folgt, ist gefolgt | suivre, suis, suit, suivons, suivent, suivi | * people animals
believe | glauben, glaubt, geglaubt | croire, crois, croit, croyons, croient, cru | people
answer | antworten, antwortet, geantwortet | répondre à, réponds, répond, répondons, répondent, répondu | people
obey | gehorchen, gehorcht, gehorcht | obéir à, obéis, obéit, obéissons, obéissent, obéi | * people
forgive/forgave | verzeihen, verzeiht, verziehen | pardonner à | people
contradict | widersprechen, widerspricht, widersprochen | \
    contredire, contredis, contredit, contredisons, contredisent, contredit | people
congratulate | gratulieren, gratuliert, gratuliert | féliciter | people
listen to/listened to | zu|hören, hört, zugehört | écouter | people
watch | zu|sehen, sieht, zugesehen | observer | * people animals
resemble/- | ähneln, ähnelt, geähnelt | ressembler à | people
"""

# verb | accusative objects; the recipient is in the dative
DITRANSITIVE_TABLE = """
give/gave | geben, gibt, gegeben | donner | things text clothing food
show/showed | zeigen, zeigt, gezeigt | montrer | things text clothing animals building
send/sent | schicken, schickt, geschickt | envoyer, envoie | text clothing things
bring/brought | bringen, bringt, gebracht | apporter | things text drink meal food
lend/lent | leihen, leiht, geliehen | prêter | things text clothing
offer | an|bieten, bietet, angeboten | offrir, offre, offre, offrons, offrent, offert | drink meal food
"""

# verb | English preposition, German preposition, case, French preposition or - | objects
PREPOSITIONAL_TABLE = """
wait/waited | warten, wartet, gewartet | attendre, attends, attend, attendons, attendent, attendu | for auf A - | \
    people
talk | sprechen, spricht, gesprochen | parler | about über A de | people text building
talk | sprechen, spricht, gesprochen | parler | with mit D avec | people
dream | träumen, träumt, geträumt | rêver | of von D de | people animals building
think/thought | denken, denkt, gedacht | penser | of an A à | people building
play | spielen, spielt, gespielt | jouer | with mit D avec | animals
look/looked | auf|passen, passt, aufgepasst | se occuper | after auf A de | people animals
"""

# verb | English preposition, German preposition, case, French preposition | directions
MOTION_TABLE = """
go/went | gehen, geht, ist gegangen | être aller, vais, va, allons, vont, allé | to zu D à | place
go/went | gehen, geht, ist gegangen | être aller, vais, va, allons, vont, allé | into in A dans | building
run/ran | laufen, läuft, ist gelaufen | courir, cours, court, courons, courent, couru | to zu D à | place
run/ran | laufen, läuft, ist gelaufen | courir, cours, court, courons, courent, couru | into in A dans | building
come/came | kommen, kommt, ist gekommen | être venir, viens, vient, venons, viennent, venu | from aus D de | \
    place area
come back/came back | zurück|kommen, kommt, ist zurückgekommen | \
    être revenir, reviens, revient, revenons, reviennent, revenu | from aus D de | place area
return | zurück|kehren, kehrt, ist zurückgekehrt | être retourner | to zu D à | place
"""

# verbs with a clause
CLAUSE_TABLE = """
say/- | sagen, sagt, gesagt | dire, dis, dit, disons, disent, dit
think/- | denken, denkt, gedacht | penser
know/- | wissen, weiß, gewusst | savoir, sais, sait, savons, savent, su
believe/- | glauben, glaubt, geglaubt | croire, crois, croit, croyons, croient, cru
hope/- | hoffen, hofft, gehofft | espérer, espère
see/- | sehen, sieht, gesehen | voir, vois, voit, voyons, voient, vu
notice/- | bemerken, bemerkt, bemerkt | remarquer
"""

CASES = {"A": ACCUSATIVE, "D": DATIVE}
TO_BE = Verb(
    english=("be", "is", "was"),
    german=("bin", "ist", "sind", "sind"),
    infinitive="sein",
    participle="gewesen",
    perfect_with_sein=True,
    prefix="",
    case=ACCUSATIVE,
    french=("suis", "est", "sommes", "sont"),
    french_infinitive="être",
    french_participle="été",
    perfect_with_etre=False,
    reflexive=False,
    french_preposition="",
)


def english_forms(text: str) -> tuple[str, str, str]:
    """Return the base, third person and past of "base[/past]"; the past is "" if it is not used."""
    base, _, past = text.partition("/")
    head, space, particle = base.partition(" ")
    if head.endswith(("s", "sh", "ch", "o")):
        third = head + "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        third = head[:-1] + "ies"
    else:
        third = head + "s"
    if not past:
        stem = head[:-1] + "i" if third.endswith("ies") else head.removesuffix("e")
        past = stem + "ed" + space + particle
    return base, third + space + particle, "" if past in "-=" else past


def german_present(infinitive: str, third: str) -> tuple[str, ...]:
    """Return the present for ich, er, wir, sie, from the stem of the infinitive and the third person in the table."""
    if not third.endswith("t"):  # weiß: a past form used as the present
        first = third
    elif infinitive.endswith("eln"):
        first = infinitive[:-3] + "le"
    elif infinitive.endswith("ern"):
        first = infinitive[:-1] + "e"
    else:
        first = infinitive[:-1]
    return first, third, infinitive, infinitive


def french_conjugation(infinitive: str, forms: list[str]) -> tuple[str, ...]:
    """Return the present for je, il, nous, ils, and the participle. For verbs in -er `forms` is empty, or je alone."""
    if len(forms) > 1:
        return tuple(forms)
    stem = infinitive[:-2]
    first = forms[0] if forms else stem + "e"
    return first, first, stem + ("eons" if stem.endswith("g") else "ons"), first + "nt", stem + "é"


def _verb(english: str, german: str, french: str, case: int = ACCUSATIVE) -> Verb:
    marked, third, participle = german.split(", ")
    prefix, _, rest = marked.rpartition("|")
    marked, *forms = french.split(", ")
    *marks, french_infinitive = marked.removesuffix(" à").split()
    *french_present, french_participle = french_conjugation(french_infinitive, forms)
    return Verb(
        english_forms(english),
        german_present(rest, third),
        prefix + rest,
        participle.removeprefix("ist "),
        participle.startswith("ist "),
        prefix,
        case,
        tuple(french_present),
        french_infinitive,
        french_participle,
        bool(marks),
        "se" in marks,
        "à" if marked.endswith(" à") else "",
    )


def _with_object(table: str, case: int) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            _verb(english, german, french, case),
            kinds_of("people animal" if "*" in kinds else "people"),
            kinds_of(kinds.strip("*+ ")),
            beneficiary="+" in kinds,
            stative=english.endswith("/-"),
        )
        for english, german, french, kinds in rows(table, 4)
    )


def _with_preposition(table: str) -> tuple[Entry, ...]:
    entries = []
    for english, german, french, government, kinds in rows(table, 5):
        ours, theirs, case, french_preposition = government.split()
        preposition = Preposition(ours, theirs, CASES[case], french_preposition.strip("-"))
        entries.append(Entry(_verb(english, german, french), kinds_of("people"), kinds_of(kinds), preposition))
    return tuple(entries)


INTRANSITIVE = tuple(
    Entry(_verb(english, german, french), kinds_of(kinds.lstrip("! ")), place=not kinds.startswith("!"))
    for english, german, french, kinds in rows(INTRANSITIVE_TABLE, 4)
)
TRANSITIVE = _with_object(TRANSITIVE_TABLE, ACCUSATIVE)
DATIVE_VERBS = _with_object(DATIVE_TABLE, DATIVE)
DITRANSITIVE = _with_object(DITRANSITIVE_TABLE, ACCUSATIVE)
PREPOSITIONAL = _with_preposition(PREPOSITIONAL_TABLE)
MOTION = _with_preposition(MOTION_TABLE)
CLAUSE_VERBS = tuple(_verb(english, german, french) for english, german, french in rows(CLAUSE_TABLE, 3))
