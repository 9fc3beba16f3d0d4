"""Derives tags from a text, so that a query finds entries that use other words.

Pure: text in, words out. Has English and Spanish stop words and synonyms; words of other languages become tags
themselves.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

MAX_TAGS = 8
"""Tags of a stored text; with more, every text would match every query."""

MIN_LETTERS = 4
"""Letters of a word that becomes a tag without being a known concept; shorter ones are mostly stop words."""

_WORD = re.compile(r"[^\W_]+")
_ACCENT = re.compile("[\u0300-\u036f]")
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"))

_STOP_WORDS = frozenset(
    # English
    "a about after all also am an and any are as at be because been before being but by can could did do does doing "
    "done down each few for from had has have having he her here hers him his how i if in into is it its just me more "
    "most my no nor not now of off on once only or other our out over own same she should so some such than that the "
    "their them then there these they this those through to too under until up us very was we were what when where "
    "which while who whom why will with would you your "
    # Spanish
    "al algo ante como con cual cuando de del desde donde el ella ellas ellos en entre era es esa ese eso esta estas "
    "este esto estos fue ha han hasta hay la las le les lo los mas mi mis muy nos o para pero por porque que quien se "
    "ser si sin sobre son su sus tambien te tiene todo tu un una uno unos y ya".split()
)

_SYNONYMS = {
    "preference": "prefer preference favorite favourite favor like love enjoy want wish dislike hate preferir prefiere "
    "preferencia favorito gustar gusta quiere odia",
    "brevity": "concise brief short terse succinct compact summary summarize tldr breve corto corta conciso resumen",
    "detail": "detail detailed verbose thorough elaborate lengthy exhaustive detalle detallado extenso",
    "communication": "answer reply response respond message chat write say tell talk speak tone respuesta responder "
    "mensaje escribir hablar",
    "language": "language english spanish french german portuguese translate idioma lengua ingles espanol traducir",
    "time": "time date day week month year hour minute schedule calendar deadline today tomorrow yesterday morning "
    "evening tiempo fecha dia semana mes hora horario manana ayer hoy",
    "meeting": "meeting meet appointment call conference event reunion cita llamada",
    "money": "money price cost pay payment invoice bill budget fee charge refund salary dinero precio costo pago pagar "
    "factura presupuesto",
    "purchase": "buy purchase order cart checkout shop store comprar compra pedido tienda carrito",
    "sale": "sell sale customer client lead deal discount offer venta vender cliente descuento oferta",
    "delivery": "delivery deliver shipping ship package parcel courier envio enviar entrega paquete",
    "place": "place location address city country street town home office lugar direccion ciudad pais calle casa "
    "oficina",
    "travel": "travel trip flight hotel booking train airport vacation viaje viajar vuelo reserva vacaciones",
    "food": "food eat meal restaurant lunch dinner breakfast cook recipe vegetarian vegan comida comer almuerzo cena "
    "receta",
    "health": "health doctor hospital medicine illness allergy allergic pain symptom salud medico medicina alergia "
    "alergico dolor",
    "family": "family wife husband spouse partner child kid son daughter mother father parent brother sister familia "
    "esposa esposo hijo hija madre padre hermano hermana",
    "person": "name person people friend colleague contact nombre persona amigo colega contacto",
    "work": "work job task project team boss career trabajo tarea proyecto equipo jefe",
    "problem": "problem bug error issue fail failure crash broken fault defect trouble problema fallo falla roto",
    "solution": "solution fix solve repair resolve workaround patch solucion arreglar resolver",
    "software": "software code program app application api server deploy deployment database release version script "
    "programa aplicacion servidor codigo",
    "security": "security password secret token login credential auth authenticate permission encrypt seguridad "
    "contrasena clave secreto permiso",
    "privacy": "privacy private personal confidential sensitive privacidad privado confidencial",
    "document": "document file report note page pdf spreadsheet documento archivo informe nota",
    "decision": "decide decision choose choice agree agreed approve approval decidir elegir eleccion aprobar acuerdo",
    "plan": "plan goal objective strategy roadmap intend meta objetivo estrategia",
    "rule": "rule policy always never must forbid forbidden regla politica siempre nunca debe prohibido",
}
_CONCEPT_OF = {word: concept for concept, words in _SYNONYMS.items() for word in words.split()}


def words(text: str) -> list[str]:
    """The words of a text in order, in lower case and without accents; a `camelCase` name also gives its parts."""
    # Composed again, for scripts that are written with other marks than accents.
    folded = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", text)))
    return [part.lower() for word in _WORD.findall(folded) for part in _parts(word)]


def _parts(word: str) -> list[str]:
    parts = _CAMEL_HUMP.split(word)
    return parts if len(parts) == 1 else [word, *parts]


def significant(found: list[str]) -> list[str]:
    """The words that are no stop words, each once; all of them when there are only stop words."""
    distinct = list(dict.fromkeys(found))
    return [word for word in distinct if word not in _STOP_WORDS] or distinct


def derive(text: str, limit: int = MAX_TAGS) -> tuple[str, ...]:
    """Up to `limit` tags of a text: known concepts, then its own words, the most frequent first."""
    concepts, others = Counter[str](), Counter[str]()
    for word, times in Counter(word for word in words(text) if word not in _STOP_WORDS).items():
        concept = _concept(word)
        if concept is not None:
            concepts[concept] += times
        elif len(word) >= MIN_LETTERS:
            others[word] = times
    ranked = [tag for counter in (concepts, others) for tag, _ in counter.most_common()]
    return tuple(ranked[:limit])


def _concept(word: str) -> str | None:
    """The concept a word stands for, also in the plural or as another form of a verb."""
    return next((_CONCEPT_OF[form] for form in _forms(word) if form in _CONCEPT_OF), None)


def _forms(word: str) -> Iterator[str]:
    yield word
    for ending, instead in _ENDINGS:
        if word.endswith(ending):
            yield word.removesuffix(ending) + instead
