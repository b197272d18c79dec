"""Nouns with their declensions, sorted by kind: this semantic class decides which verbs and adjectives go with them.

Under each kind: English [plural if irregular] | German article, noun[, genitive], plural | French article, noun.
German masculine and neuter nouns give the genitive; a genitive in -n marks the weak declension (der Junge, des Jungen).
The kinds "meal" and "drink" are mass nouns and have no plural. An irregular French plural follows a comma.
"""

import re

from ..syntax import FEMININE, MASCULINE, NEUTER, Noun
from .tables import rows

TABLE = """
person
  man men | der Mann, Mannes, Männer | un homme
  woman women | die Frau, Frauen | une femme
  boy | der Junge, Jungen, Jungen | un garçon
  girl | das Mädchen, Mädchens, Mädchen | une fille
  nurse | die Krankenschwester, Krankenschwestern | une infirmière
  farmer | der Bauer, Bauern, Bauern | un agriculteur
  baker | der Bäcker, Bäckers, Bäcker | un boulanger
  singer | der Sänger, Sängers, Sänger | un chanteur
  king | der König, Königs, Könige | un roi
  queen | die Königin, Königinnen | une reine
  prince | der Prinz, Prinzen, Prinzen | un prince
  princess | die Prinzessin, Prinzessinnen | une princesse
  painter | der Maler, Malers, Maler | un peintre
  writer | der Schriftsteller, Schriftstellers, Schriftsteller | un écrivain
  policeman policemen | der Polizist, Polizisten, Polizisten | un policier
  soldier | der Soldat, Soldaten, Soldaten | un soldat
  waiter | der Kellner, Kellners, Kellner | un serveur
  actress | die Schauspielerin, Schauspielerinnen | une actrice
  tourist | der Tourist, Touristen, Touristen | un touriste
  hunter | der Jäger, Jägers, Jäger | un chasseur
relation
  child children | das Kind, Kindes, Kinder | un enfant
  teacher | der Lehrer, Lehrers, Lehrer | un professeur
  student | der Student, Studenten, Studenten | un étudiant
  doctor | der Arzt, Arztes, Ärzte | un médecin
  brother | der Bruder, Bruders, Brüder | un frère
  sister | die Schwester, Schwestern | une sœur
  son | der Sohn, Sohnes, Söhne | un fils
  daughter | die Tochter, Töchter | une fille
  uncle | der Onkel, Onkels, Onkel | un oncle
  aunt | die Tante, Tanten | une tante
  grandmother | die Großmutter, Großmütter | une grand-mère, grands-mères
  grandfather | der Großvater, Großvaters, Großväter | un grand-père, grands-pères
  neighbor | der Nachbar, Nachbarn, Nachbarn | un voisin
  friend | der Freund, Freundes, Freunde | un ami
  guest | der Gast, Gastes, Gäste | un invité
  lawyer | der Anwalt, Anwalts, Anwälte | un avocat
  colleague | der Kollege, Kollegen, Kollegen | un collègue
  customer | der Kunde, Kunden, Kunden | un client
parent
  mother | die Mutter, Mütter | une mère
  father | der Vater, Vaters, Väter | un père
pet
  dog | der Hund, Hundes, Hunde | un chien
  cat | die Katze, Katzen | un chat
  horse | das Pferd, Pferdes, Pferde | un cheval
  cow | die Kuh, Kühe | une vache
  bird | der Vogel, Vogels, Vögel | un oiseau
  rabbit | das Kaninchen, Kaninchens, Kaninchen | un lapin
  pig | das Schwein, Schweins, Schweine | un cochon
  goat | die Ziege, Ziegen | une chèvre
  duck | die Ente, Enten | un canard
animal
  mouse mice | die Maus, Mäuse | une souris
  lion | der Löwe, Löwen, Löwen | un lion
  bear | der Bär, Bären, Bären | un ours
  elephant | der Elefant, Elefanten, Elefanten | un éléphant
  monkey | der Affe, Affen, Affen | un singe
  fox | der Fuchs, Fuchses, Füchse | un renard
  wolf wolves | der Wolf, Wolfes, Wölfe | un loup
  frog | der Frosch, Frosches, Frösche | une grenouille
  snake | die Schlange, Schlangen | un serpent
  hedgehog | der Igel, Igels, Igel | un hérisson
  squirrel | das Eichhörnchen, Eichhörnchens, Eichhörnchen | un écureuil
text
  book | das Buch, Buches, Bücher | un livre
  letter | der Brief, Briefes, Briefe | une lettre
  poem | das Gedicht, Gedichts, Gedichte | un poème
  story | die Geschichte, Geschichten | une histoire
  novel | der Roman, Romans, Romane | un roman
  message | die Nachricht, Nachrichten | un message
  report | der Bericht, Berichts, Berichte | un rapport
  postcard | die Postkarte, Postkarten | une carte postale, cartes postales
food
  apple | der Apfel, Apfels, Äpfel | une pomme
  pear | die Birne, Birnen | une poire
  orange | die Orange, Orangen | une orange
  cake | der Kuchen, Kuchens, Kuchen | un gâteau
  egg | das Ei, Eies, Eier | un œuf
  tomato tomatoes | die Tomate, Tomaten | une tomate
  potato potatoes | die Kartoffel, Kartoffeln | une pomme de terre, pommes de terre
  sausage | die Wurst, Würste | une saucisse
  banana | die Banane, Bananen | une banane
  cherry | die Kirsche, Kirschen | une cerise
  carrot | die Karotte, Karotten | une carotte
  lemon | die Zitrone, Zitronen | un citron
  mushroom | der Pilz, Pilzes, Pilze | un champignon
  cookie | der Keks, Kekses, Kekse | un biscuit
meal
  bread | das Brot, Brotes | un pain
  cheese | der Käse, Käses | un fromage
  butter | die Butter | un beurre
  rice | der Reis, Reises | un riz
  soup | die Suppe | une soupe
  meat | das Fleisch, Fleisches | une viande
  honey | der Honig, Honigs | un miel
  chocolate | die Schokolade | un chocolat
  ham | der Schinken, Schinkens | un jambon
  salad | der Salat, Salats | une salade
drink
  coffee | der Kaffee, Kaffees | un café
  tea | der Tee, Tees | un thé
  water | das Wasser, Wassers | une eau
  milk | die Milch | un lait
  wine | der Wein, Weins | un vin
  beer | das Bier, Biers | une bière
  juice | der Saft, Saftes | un jus
  lemonade | die Limonade | une limonade
thing
  picture | das Bild, Bildes, Bilder | une image
  key | der Schlüssel, Schlüssels, Schlüssel | une clé
  cup | die Tasse, Tassen | une tasse
  plate | der Teller, Tellers, Teller | une assiette
  knife knives | das Messer, Messers, Messer | un couteau
  spoon | der Löffel, Löffels, Löffel | une cuillère
  bottle | die Flasche, Flaschen | une bouteille
  ball | der Ball, Balls, Bälle | un ballon
  flower | die Blume, Blumen | une fleur
  map | die Landkarte, Landkarten | une carte
  candle | die Kerze, Kerzen | une bougie
  pencil | der Bleistift, Bleistifts, Bleistifte | un crayon
  ring | der Ring, Rings, Ringe | une bague
goods
  car | das Auto, Autos, Autos | une voiture
  bicycle | das Fahrrad, Fahrrads, Fahrräder | un vélo
  table | der Tisch, Tisches, Tische | une table
  chair | der Stuhl, Stuhls, Stühle | une chaise
  bed | das Bett, Bettes, Betten | un lit
  clock | die Uhr, Uhren | une horloge
  phone | das Telefon, Telefons, Telefone | un téléphone
  umbrella | der Regenschirm, Regenschirms, Regenschirme | un parapluie
  guitar | die Gitarre, Gitarren | une guitare
  piano | das Klavier, Klaviers, Klaviere | un piano
  mirror | der Spiegel, Spiegels, Spiegel | un miroir
  doll | die Puppe, Puppen | une poupée
container
  box | die Kiste, Kisten | une boîte
  suitcase | der Koffer, Koffers, Koffer | une valise
  bag | die Tasche, Taschen | un sac
  drawer | die Schublade, Schubladen | un tiroir
opening
  door | die Tür, Türen | une porte
  window | das Fenster, Fensters, Fenster | une fenêtre
  gate | das Tor, Tors, Tore | un portail, portails
device
  lamp | die Lampe, Lampen | une lampe
  computer | der Computer, Computers, Computer | un ordinateur
  television | der Fernseher, Fernsehers, Fernseher | un téléviseur
  radio | das Radio, Radios, Radios | une radio
garment
  coat | der Mantel, Mantels, Mäntel | un manteau
  dress | das Kleid, Kleides, Kleider | une robe
  shirt | das Hemd, Hemdes, Hemden | une chemise
  skirt | der Rock, Rocks, Röcke | une jupe
  shoe | der Schuh, Schuhs, Schuhe | une chaussure
  jacket | die Jacke, Jacken | une veste
  sweater | der Pullover, Pullovers, Pullover | un pull
  glove | der Handschuh, Handschuhs, Handschuhe | un gant
  sock | die Socke, Socken | une chaussette
accessory
  hat | der Hut, Hutes, Hüte | un chapeau
  scarf scarves | der Schal, Schals, Schals | une écharpe
  belt | der Gürtel, Gürtels, Gürtel | une ceinture
place
  school | die Schule, Schulen | une école
  church | die Kirche, Kirchen | une église
  museum | das Museum, Museums, Museen | un musée
  restaurant | das Restaurant, Restaurants, Restaurants | un restaurant
  hotel | das Hotel, Hotels, Hotels | un hôtel
  library | die Bibliothek, Bibliotheken | une bibliothèque
  station | der Bahnhof, Bahnhofs, Bahnhöfe | une gare
  hospital | das Krankenhaus, Krankenhauses, Krankenhäuser | un hôpital
  theater | das Theater, Theaters, Theater | un théâtre
  factory | die Fabrik, Fabriken | une usine
  bakery | die Bäckerei, Bäckereien | une boulangerie
  zoo | der Zoo, Zoos, Zoos | un zoo
  pharmacy | die Apotheke, Apotheken | une pharmacie
area
  garden | der Garten, Gartens, Gärten | un jardin
  city | die Stadt, Städte | une ville
  village | das Dorf, Dorfes, Dörfer | un village
  forest | der Wald, Waldes, Wälder | une forêt
  park | der Park, Parks, Parks | un parc
  castle | das Schloss, Schlosses, Schlösser | un château
room
  kitchen | die Küche, Küchen | une cuisine
  room | das Zimmer, Zimmers, Zimmer | une chambre
  office | das Büro, Büros, Büros | un bureau
  house | das Haus, Hauses, Häuser | une maison
"""
# Groups: names for several kinds in the tables of verbs and adjectives.
GROUPS = {
    "people": ("person", "relation", "parent"),
    "animals": ("pet", "animal"),
    "things": ("thing", "goods"),
    "object": ("thing", "goods", "container", "device"),
    "clothing": ("garment", "accessory"),
    "building": ("place", "area", "room"),
}
MASS = ("meal", "drink")
GENDERS = {"der": MASCULINE, "das": NEUTER, "die": FEMININE}


def english_plural(word: str) -> str:
    """Return the regular English plural: dog, dogs; box, boxes; city, cities."""
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def french_plural(word: str) -> str:
    """Return the regular French plural: chien, chiens; cheval, chevaux; gâteau, gâteaux; souris, souris."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + ("x" if word.endswith(("au", "eu")) else "s")


def german_cases(singular: str, genitive: str, plural: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the declension of a German noun, [plural][case]; the dative plural takes -n if it can."""
    weak = genitive != singular and genitive.endswith("n")
    oblique = genitive if weak else singular
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    return (singular, oblique, oblique, genitive), (plural, plural, dative_plural, plural)


def _noun(kind: str, english: str, german: str, french: str) -> Noun:
    singular, *plural = english.split()
    article, german_forms = german.split(" ", 1)
    forms = german_forms.split(", ")
    genitive = forms[0] if article == "die" else forms.pop(1)
    french_article, french_forms = french.split(" ", 1)
    french_singular, _, irregular = french_forms.partition(", ")
    return Noun(
        kind,
        (singular, plural[0] if plural else english_plural(singular)),
        GENDERS[article],
        german_cases(forms[0], genitive, forms[-1]),
        french_article == "une",
        (french_singular, irregular or french_plural(french_singular)),
    )


def kinds_of(text: str) -> tuple[str, ...]:
    """Return the kinds of nouns that a table names, without groups: "people text" is person, relation, parent, text."""
    return tuple(kind for name in text.split() for kind in GROUPS.get(name, (name,)))


_, *PARTS = re.split(r"^(\w+)\n", TABLE, flags=re.MULTILINE)  # kind, its lines, kind, its lines, …
NOUNS: dict[str, tuple[Noun, ...]] = {
    kind: tuple(_noun(kind, *columns) for columns in rows(lines, 3))
    for kind, lines in zip(PARTS[::2], PARTS[1::2], strict=True)
}
