"""How the tiny models of the page "Training" were made: corpus, tokenizer, training, measuring.

`make checkpoints` runs it all (training/__main__.py) and writes training/checkpoints/ and training/logs/. Nothing else imports
this package: the app reads the files. See training/README.md for the recipe and for what it does not show.
"""
