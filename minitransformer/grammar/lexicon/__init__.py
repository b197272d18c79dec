"""The lexicon: 374 lemmas with their German and French forms, as tables that a reader can check."""
