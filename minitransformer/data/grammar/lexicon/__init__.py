"""The lexicon: about 400 lemmas with their German and French forms, as tables that a reader can check."""
