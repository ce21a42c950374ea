"""Pictures of attention and of training, as files and in the terminal.

`attention` draws heatmaps, `curves` the learning curves, `lengths` BLEU by sentence length,
`terminal` a heatmap out of characters.
Importing any of them is cheap: matplotlib and rich are loaded by the first picture.
"""
