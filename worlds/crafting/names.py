"""The names of the crafting world's items: two words, of which neither tells the tier."""

DOMAINS: dict[str, tuple[str, str]] = {
    "smithing": (
        "iron ore, copper ore, tin ore, silver ore, coal, flux stone, quench oil, borax, zinc ore, lead ore",
        "blade, hinge, rivet, plate, chain, anvil, buckle, bracket, gear, spring, clamp, hammer, lattice, helm, lock",
    ),
    "alchemy": (
        "sulphur, saltpetre, mercury, moon dew, ash, bone meal, spring water, vitriol, amber, bitter root",
        "ink, ether, tonic, elixir, serum, powder, salve, tincture, essence, resin, lye, acid, balm, crystal, potion",
    ),
    "carpentry": (
        "oak log, pine log, ash log, birch log, willow wand, bark, sap, moss, peg wood, cork",
        "beam, plank, dowel, chest, barrel, ladder, frame, panel, wheel, shelf, trestle, cabinet, mallet, spindle, bow",
    ),
    "weaving": (
        "wool, flax, cotton, silk thread, hemp, madder, woad, alum, nettle, goose down",
        "yarn, cloth, ribbon, tapestry, cloak, cord, net, felt, banner, quilt, sash, satchel, lace, canvas, glove",
    ),
    "masonry": (
        "clay, sand, limestone, granite, slate, gravel, gypsum, marble, chalk, basalt",
        "brick, tile, arch, column, mortar, vault, lintel, mosaic, slab, urn, corbel, hearth, statue, kerb, basin",
    ),
}
"""Each domain's ten base items and fifteen nouns."""

ADJECTIVES = (
    "gilded, plain, rough, hard, carved, braided, hollow, heavy, slender, twin, polished, dark, pale, ribbed, curved, "
    "royal, common, broad, narrow, inlaid"
)

CROSS = (
    "sky lantern, tide clock, war engine, observatory, printing press, grand organ, river gate, siege tower, glass "
    "garden, flying kite, star chart, travelling court"
)
"""What is made of several domains' items."""


def words(text: str) -> list[str]:
    """Split a comma-separated ``text``."""
    return [word.strip() for word in text.split(",")]
